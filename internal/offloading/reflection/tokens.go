// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=serviceaccounts/token,verbs=create

// tokens gives remote pods tokens for the API server of this cluster. They are bound to the local pods, so that they expire with them, and are replaced
// before they expire.
type tokens struct {
	engine  *Engine
	workers int
	queue   *queue
	// own caches the remote Secrets if the reflector of Secrets does not.
	own *fanin.Source

	mu sync.Mutex
	// issued are the last tokens of each local pod, by its UID.
	issued map[types.UID]issuedTokens
}

// issuedTokens are tokens that this process has issued. unseen: the cache has not shown their Secret since.
type issuedTokens struct {
	at     time.Time
	unseen bool
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

func newTokens(e *Engine, workers int) *tokens {
	t := &tokens{engine: e, workers: workers, queue: newQueue(workers), issued: map[types.UID]issuedTokens{}}
	t.queue.pause() // until the peer is reachable
	if e.reflector("Secret") == nil {
		t.own = fanin.New(fanin.Options{
			Object: &metav1.PartialObjectMetadata{}, List: metadata(secretKind), Trim: trimRemote(secretKind),
			Client: e.remote.waitForClient, Changed: t.remoteChanged,
		})
	}
	return t
}

func (t *tokens) run(ctx context.Context, working *sync.WaitGroup) {
	for range t.workers {
		working.Go(func() { work(ctx, t.queue, t.engine, "ServiceAccount", t.reconcile) })
	}
}

func (t *tokens) start(mapping *mapping) {
	if t.own != nil {
		t.own.Add(mapping.ctx, mapping.Remote)
	}
}

func (t *tokens) stop(mapping *mapping) {
	if t.own != nil {
		t.own.Remove(mapping.Remote)
	}
}

func (t *tokens) secrets() *fanin.Source {
	if t.own != nil {
		return t.own
	}
	return t.engine.reflector("Secret").remote
}

func (t *tokens) remoteChanged(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	if object.GetLabels()[labels.TokenPod] == "" {
		return
	}
	mapping := t.engine.mappings.remote(object.GetNamespace())
	if mapping == nil {
		return
	}
	t.seen(types.UID(object.GetAnnotations()[labels.TokenPodUID]))
	t.queue.add(types.NamespacedName{Namespace: mapping.Local, Name: t.podOf(mapping, object.GetName())})
}

// podOf returns the name of the pod whose tokens are in the Secret of this name.
func (t *tokens) podOf(mapping *mapping, secret string) string {
	name := strings.TrimSuffix(secret, "-token")
	if project.TokenSecretName(name) == secret {
		return name
	}
	for _, pod := range t.engine.pods.local.All(mapping.Local) { // the names of long ones are shortened and hashed
		if project.TokenSecretName(pod.GetName()) == secret {
			return pod.GetName()
		}
	}
	return name
}

// policyChanged requeues all pods of a mapping: under the new token policy their tokens are renewed again, or no longer.
func (t *tokens) policyChanged(mapping *mapping) {
	for _, pod := range t.engine.pods.local.All(mapping.Local) {
		t.queue.add(client.ObjectKeyFromObject(pod))
	}
}

// reconcile replaces the tokens of a pod in time, and deletes the Secret of a pod that is gone.
func (t *tokens) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, _ := t.engine.mappings.local(key.Namespace)
	if mapping == nil || mapping.terminating.Load() {
		return 0, nil
	}
	pods := t.engine.pods
	if !pods.local.Current(fanin.Every) || !t.secrets().Synced(mapping.Remote) || !pods.shadows.Synced(mapping.Remote) {
		return 0, errNotSynced // retry: no later event is certain
	}
	local, _ := pods.local.Get(key).(*corev1.Pod)
	secret := t.secret(mapping, key.Name)
	switch {
	case secret != nil && (local == nil || secret.Annotations[labels.TokenPodUID] != string(local.UID)):
		if secret.DeletionTimestamp != nil {
			return 0, nil
		}
		return 0, t.engine.remote.remove(mapping.ctx, secret, metav1.DeletePropagationBackground)
	case local == nil || project.Finished(local.Status.Phase) || local.DeletionTimestamp != nil && secret == nil:
		return 0, nil
	case !mapping.apiServer.Load():
		return 0, nil // its tokens expire; policyChanged requeues the pod
	}
	return t.refresh(ctx, mapping, local, secret)
}

// secret returns the Secret with the tokens of the pod of that name; nil if there is none of ours.
func (t *tokens) secret(mapping *mapping, pod string) *metav1.PartialObjectMetadata {
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: project.TokenSecretName(pod)}
	secret, _ := t.secrets().Get(remoteKey).(*metav1.PartialObjectMetadata)
	if secret == nil || !mapping.Reflected(secret) || secret.Labels[labels.TokenPod] == "" {
		return nil
	}
	return secret
}

// ensure issues the first tokens of a pod whose ShadowPod is about to be created (shadow is nil). For an existing ShadowPod it only requeues the pod if its
// Secret is missing.
func (t *tokens) ensure(ctx context.Context, mapping *mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) error {
	requests := project.TokenRequests(local)
	if len(requests) == 0 {
		return nil
	}
	if !t.secrets().Current(mapping.Remote) {
		return errNotSynced
	}
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: project.TokenSecretName(local.Name)}
	if other := t.secrets().Get(remoteKey); other != nil && t.secret(mapping, local.Name) == nil {
		t.engine.recorder.failed(local, podKind, reasonTokenFailed, errUnmanaged)
		return fmt.Errorf("secret %s: %w", remoteKey.Name, errUnmanaged)
	}
	secret := t.secret(mapping, local.Name)
	mine := secret != nil && secret.Annotations[labels.TokenPodUID] == string(local.UID)
	switch {
	case mine && (shadow != nil || refreshIn(secret, requests) > 0), t.isUnseen(local.UID):
		return nil
	case shadow != nil:
		t.queue.add(client.ObjectKeyFromObject(local)) // only one worker at a time requests the tokens of a pod
		return nil
	}
	_, err := t.issue(ctx, mapping, local, requests)
	return err
}

// isUnseen reports whether the event of the Secret that we wrote is still to come. It does not come if the Secret was deleted with its namespace before the
// watch showed it.
func (t *tokens) isUnseen(pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.issued[pod]
	return last.unseen && time.Since(last.at) <= settleTimeout
}

func (t *tokens) seen(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, is := t.issued[pod]; is {
		last.unseen = false
		t.issued[pod] = last
	}
}

// remember records that tokens were issued. Only the deletion event of the pod frees that, so nothing is kept for a pod that is gone already.
func (t *tokens) remember(local *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.engine.pods.local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
		t.issued[local.UID] = issuedTokens{at: time.Now(), unseen: true}
	}
}

func (t *tokens) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.issued, pod)
}

// refresh replaces tokens after four fifths of their lifetime, and those whose Secret was deleted.
func (t *tokens) refresh(ctx context.Context, mapping *mapping, local *corev1.Pod, secret *metav1.PartialObjectMetadata) (time.Duration, error) {
	requests := project.TokenRequests(local)
	if len(requests) == 0 {
		return 0, nil
	}
	switch wait := refreshIn(secret, requests); {
	case wait > 0:
		return wait, nil
	case secret != nil && t.justIssued(local) > 0:
		return t.justIssued(local), nil // they look expired although they are new: our clock and that of the API server differ
	case secret == nil && t.isUnseen(local.UID):
		return settleTimeout, nil // the event of our write is still to come
	}
	shadow, _ := t.engine.pods.shadows.Get(types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}).(*metav1.PartialObjectMetadata)
	if shadow == nil {
		return 0, nil // the outbound worker issues the first tokens when it creates the ShadowPod
	}
	if mounted, err := t.mounted(mapping, local, shadow); err != nil || !mounted {
		return 0, err
	}
	return t.issue(ctx, mapping, local, requests)
}

// refreshIn returns how long the tokens are still good; 0 or less if they have to be replaced now, or if that is not known. The peer can change the
// annotations: whatever they are, the tokens are replaced within the time that was requested for them.
func refreshIn(secret *metav1.PartialObjectMetadata, requests []project.TokenRequest) time.Duration {
	if secret == nil {
		return 0
	}
	expires, err := time.Parse(time.RFC3339, secret.Annotations[labels.TokenExpiration])
	if err != nil {
		return 0
	}
	seconds := shortest(requests)
	if given, err := strconv.ParseInt(secret.Annotations[labels.TokenLifetime], 10, 64); err == nil && given > 0 {
		seconds = min(seconds, given)
	}
	return min(time.Until(project.TokenRefresh(expires, seconds)), time.Duration(seconds)*time.Second)
}

// justIssued returns how long not to replace tokens that we issued a moment ago, whatever expiration they show.
func (t *tokens) justIssued(local *corev1.Pod) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(time.Until(t.issued[local.UID].at.Add(settleTimeout)), 0)
}

// mounted asks the peer's API server whether a ShadowPod mounts tokens. It may have been created while its namespace had none, and a token that no pod
// reads could only be stolen.
func (t *tokens) mounted(mapping *mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (bool, error) {
	if !mapping.Reflected(shadow) || shadow.Annotations[labels.Fence] != string(local.UID) {
		return false, nil // it is that of another pod
	}
	full, err := t.engine.pods.readShadow(mapping, shadow)
	if err != nil || full == nil {
		return false, err
	}
	return project.MountsTokens(&full.Spec.Pod, local.Name), nil
}

func shortest(requests []project.TokenRequest) int64 {
	seconds := requests[0].ExpirationSeconds
	for _, request := range requests {
		seconds = min(seconds, request.ExpirationSeconds)
	}
	return seconds
}

// issue requests the tokens of a pod and writes them into its Secret in the peer.
func (t *tokens) issue(ctx context.Context, mapping *mapping, local *corev1.Pod, requests []project.TokenRequest) (time.Duration, error) {
	if !mapping.apiServer.Load() {
		return 0, errNotSynced // the policy has changed since the caller read it
	}
	values, expires, seconds, err := t.request(ctx, local, requests)
	if err == nil && !mapping.apiServer.Load() {
		return 0, errNotSynced // the policy has changed meanwhile: drop them
	}
	if err == nil {
		c, unreachable := t.engine.remote.currentClient()
		if err = unreachable; err == nil {
			err = c.Apply(mapping.ctx, project.TokenSecret(mapping.NamespaceMapping, local, values, expires, seconds), client.FieldOwner(labels.OwnerReflection), client.ForceOwnership)
		}
	}
	if err != nil {
		if visible(err) || apierrors.IsNotFound(err) {
			t.engine.recorder.failed(local, podKind, reasonTokenFailed, err)
		}
		return 0, fmt.Errorf("tokens of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	t.remember(local)
	return max(time.Until(project.TokenRefresh(expires, seconds)), settleTimeout), nil
}

func (t *tokens) request(ctx context.Context, local *corev1.Pod, requests []project.TokenRequest) (values map[string]string, expires time.Time, seconds int64, err error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: project.ServiceAccountName(local)}}
	values, seconds = map[string]string{}, shortest(requests)
	for _, request := range requests {
		token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(request.ExpirationSeconds),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: local.Name, UID: local.UID},
		}}
		if request.Audience != "" {
			token.Spec.Audiences = []string{request.Audience}
		}
		if err := t.engine.local.SubResource("token").Create(ctx, account, token); err != nil {
			return nil, time.Time{}, 0, err
		}
		if given := token.Spec.ExpirationSeconds; given != nil { // the lifetime that the API server granted
			seconds = min(seconds, *given)
		}
		for _, key := range request.Keys {
			values[key] = token.Status.Token
		}
		if end := token.Status.ExpirationTimestamp.Time; expires.IsZero() || end.Before(expires) {
			expires = end
		}
	}
	return values, expires, seconds, nil
}
