// SPDX-License-Identifier: Apache-2.0

// Package tokens gives remote pods tokens for the API server of this cluster.
//
// It does not decide which pods get some: their namespaces, and what podspec.TokenRequests reads from their volumes. The tests of package reflection cover it.
package tokens

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
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/pods"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=serviceaccounts/token,verbs=create

// Tokens gives remote pods tokens for the API server of this cluster. They are bound to the local pods, so that they expire with them, and are replaced
// before they expire.
type Tokens struct {
	Queue *fairqueue.Queue

	engine *engine.Engine
	pods   *pods.Pods
	// copies caches the remote Secrets.
	copies *fanin.Source

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

const (
	// Kind is their name in metrics, Flag the part of the flag of their workers, whose default is DefaultWorkers.
	Kind           = "ServiceAccount"
	Flag           = "service-account"
	DefaultWorkers = 3
)

// New adds the loop of the tokens to the engine. copies caches the remote Secrets, and its owner calls RemoteChanged; nil: they are cached here.
func New(e *engine.Engine, p *pods.Pods, copies *fanin.Source, workers int) *Tokens {
	t := &Tokens{engine: e, pods: p, copies: copies, Queue: fairqueue.NewQueue(workers), issued: map[types.UID]issuedTokens{}}
	loop := &engine.Loop{
		Name: Kind, Workers: workers, Queue: t.Queue, Process: t.reconcile, PolicyChanged: t.policyChanged,
		Reflected: func(mapping *engine.Mapping) int {
			return engine.Amount(t.copies.All(mapping.Remote), func(secret client.Object) bool {
				return mapping.Reflected(secret) && secret.GetLabels()[labels.TokenPod] != ""
			})
		},
	}
	if copies == nil {
		t.copies = fanin.New(fanin.Options{
			Object: &metav1.PartialObjectMetadata{}, List: engine.Metadata(secretKind), Trim: engine.TrimRemote(secretKind),
			Client: e.Remote.WaitForClient, Changed: t.RemoteChanged,
		})
		loop.Start = func(mapping *engine.Mapping) { t.copies.Add(mapping.Context, mapping.Remote) }
		loop.Stop = func(mapping *engine.Mapping) { t.copies.Remove(mapping.Remote) }
	}
	e.Add(loop)
	return t
}

// Changed implements pods.Tokens.
func (t *Tokens) Changed(pod types.NamespacedName) { t.Queue.Add(pod) }

// Retry implements pods.Tokens.
func (t *Tokens) Retry(namespace string) { t.Queue.Retry(namespace) }

// Synced reports whether the Secrets of a remote namespace are known.
func (t *Tokens) Synced(remote string) bool { return t.copies.Synced(remote) }

// RemoteChanged reconciles the pod of a remote Secret that has changed.
func (t *Tokens) RemoteChanged(before, after client.Object) {
	object := engine.Either(before, after)
	if object.GetLabels()[labels.TokenPod] == "" {
		return
	}
	mapping := t.engine.Namespaces.Remote(object.GetNamespace())
	if mapping == nil {
		return
	}
	t.seen(types.UID(object.GetAnnotations()[labels.TokenPodUID]))
	t.Queue.Add(types.NamespacedName{Namespace: mapping.Local, Name: t.podOf(mapping, object.GetName())})
}

// podOf returns the name of the pod whose tokens are in the Secret of this name.
func (t *Tokens) podOf(mapping *engine.Mapping, secret string) string {
	name := strings.TrimSuffix(secret, "-token")
	if podspec.TokenSecretName(name) == secret {
		return name
	}
	for _, pod := range t.pods.Local.All(mapping.Local) { // the names of long ones are shortened and hashed
		if podspec.TokenSecretName(pod.GetName()) == secret {
			return pod.GetName()
		}
	}
	return name
}

// policyChanged requeues all pods of a mapping: under the new token policy their tokens are renewed again, or no longer.
func (t *Tokens) policyChanged(mapping *engine.Mapping) {
	for _, pod := range t.pods.Local.All(mapping.Local) {
		t.Queue.Add(client.ObjectKeyFromObject(pod))
	}
}

// reconcile replaces the tokens of a pod in time, and deletes the Secret of a pod that is gone.
func (t *Tokens) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, _ := t.engine.Namespaces.Local(key.Namespace)
	if mapping == nil || mapping.Terminating() {
		return 0, nil
	}
	if !t.pods.Local.Current(fanin.Every) || !t.copies.Synced(mapping.Remote) || !t.pods.Shadows.Synced(mapping.Remote) {
		return 0, engine.ErrNotSynced // retry: no later event is certain
	}
	local, _ := t.pods.Local.Get(key).(*corev1.Pod)
	secret := t.secret(mapping, key.Name)
	switch {
	case secret != nil && (local == nil || secret.Annotations[labels.TokenPodUID] != string(local.UID)):
		if secret.DeletionTimestamp != nil {
			return 0, nil
		}
		return 0, t.engine.Remote.Delete(mapping.Context, secret, metav1.DeletePropagationBackground)
	case local == nil || podphase.Final(local.Status.Phase) || local.DeletionTimestamp != nil && secret == nil:
		return 0, nil
	case !mapping.APIServer():
		return 0, nil // its tokens expire; policyChanged requeues the pod
	}
	return t.refresh(ctx, mapping, local, secret)
}

// secret returns the Secret with the tokens of the pod of that name; nil if there is none of ours.
func (t *Tokens) secret(mapping *engine.Mapping, pod string) *metav1.PartialObjectMetadata {
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: podspec.TokenSecretName(pod)}
	secret, _ := t.copies.Get(remoteKey).(*metav1.PartialObjectMetadata)
	if secret == nil || !mapping.Reflected(secret) || secret.Labels[labels.TokenPod] == "" {
		return nil
	}
	return secret
}

// Ensure issues the first tokens of a pod whose ShadowPod is about to be created (shadow is nil). For an existing ShadowPod it only requeues the pod if its
// Secret is missing.
func (t *Tokens) Ensure(ctx context.Context, mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) error {
	requests := podspec.TokenRequests(local)
	if len(requests) == 0 {
		return nil
	}
	if !t.copies.Current(mapping.Remote) {
		return engine.ErrNotSynced
	}
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: podspec.TokenSecretName(local.Name)}
	if other := t.copies.Get(remoteKey); other != nil && t.secret(mapping, local.Name) == nil {
		t.engine.Recorder.Failed(local, pods.Kind, events.ReasonTokenFailed, engine.ErrUnmanaged)
		return fmt.Errorf("secret %s: %w", remoteKey.Name, engine.ErrUnmanaged)
	}
	secret := t.secret(mapping, local.Name)
	mine := secret != nil && secret.Annotations[labels.TokenPodUID] == string(local.UID)
	switch {
	case mine && (shadow != nil || refreshIn(secret, requests) > 0), t.isUnseen(local.UID):
		return nil
	case shadow != nil:
		t.Queue.Add(client.ObjectKeyFromObject(local)) // only one worker at a time requests the tokens of a pod
		return nil
	}
	_, err := t.issue(ctx, mapping, local, requests)
	return err
}

// isUnseen reports whether the event of the Secret that we wrote is still to come. It does not come if the Secret was deleted with its namespace before the
// watch showed it.
func (t *Tokens) isUnseen(pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.issued[pod]
	return last.unseen && time.Since(last.at) <= podplan.SettleTimeout
}

func (t *Tokens) seen(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.issued[pod]; ok {
		last.unseen = false
		t.issued[pod] = last
	}
}

// remember records that tokens were issued. Only the deletion event of the pod frees that, so nothing is kept for a pod that is gone already.
func (t *Tokens) remember(local *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.pods.Local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
		t.issued[local.UID] = issuedTokens{at: time.Now(), unseen: true}
	}
}

// Forget implements pods.Tokens.
func (t *Tokens) Forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.issued, pod)
}

// refresh replaces tokens after four fifths of their lifetime, and those whose Secret was deleted.
func (t *Tokens) refresh(ctx context.Context, mapping *engine.Mapping, local *corev1.Pod, secret *metav1.PartialObjectMetadata) (time.Duration, error) {
	requests := podspec.TokenRequests(local)
	if len(requests) == 0 {
		return 0, nil
	}
	switch wait := refreshIn(secret, requests); {
	case wait > 0:
		return wait, nil
	case secret != nil && t.justIssued(local) > 0:
		return t.justIssued(local), nil // they look expired although they are new: our clock and that of the API server differ
	case secret == nil && t.isUnseen(local.UID):
		return podplan.SettleTimeout, nil // the event of our write is still to come
	}
	shadow, _ := t.pods.Shadows.Get(types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}).(*metav1.PartialObjectMetadata)
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
func refreshIn(secret *metav1.PartialObjectMetadata, requests []podspec.TokenRequest) time.Duration {
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
	return min(time.Until(podspec.TokenRefresh(expires, seconds)), time.Duration(seconds)*time.Second)
}

// justIssued returns how long not to replace tokens that we issued a moment ago, whatever expiration they show.
func (t *Tokens) justIssued(local *corev1.Pod) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(time.Until(t.issued[local.UID].at.Add(podplan.SettleTimeout)), 0)
}

// mounted asks the peer's API server whether a ShadowPod mounts tokens. It may have been created while its namespace had none, and a token that no pod
// reads could only be stolen.
func (t *Tokens) mounted(mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (bool, error) {
	if !mapping.Reflected(shadow) || shadow.Annotations[labels.Fence] != string(local.UID) {
		return false, nil // it is that of another pod
	}
	full, err := t.pods.ReadShadow(mapping, shadow)
	if err != nil || full == nil {
		return false, err
	}
	return podspec.MountsTokens(&full.Spec.Pod, local.Name), nil
}

func shortest(requests []podspec.TokenRequest) int64 {
	seconds := requests[0].ExpirationSeconds
	for _, request := range requests {
		seconds = min(seconds, request.ExpirationSeconds)
	}
	return seconds
}

// issue requests the tokens of a pod and writes them into its Secret in the peer.
func (t *Tokens) issue(ctx context.Context, mapping *engine.Mapping, local *corev1.Pod, requests []podspec.TokenRequest) (time.Duration, error) {
	if !mapping.APIServer() {
		return 0, engine.ErrNotSynced // the policy has changed since the caller read it
	}
	values, expires, seconds, err := t.request(ctx, local, requests)
	if err == nil && !mapping.APIServer() {
		return 0, engine.ErrNotSynced // the policy has changed meanwhile: drop them
	}
	if err == nil {
		c, unreachable := t.engine.Remote.Client()
		if err = unreachable; err == nil {
			err = c.Apply(mapping.Context, podspec.TokenSecret(mapping.NamespaceMapping, local, values, expires, seconds), client.FieldOwner(labels.OwnerReflection),
				client.ForceOwnership)
		}
	}
	if err != nil {
		if refusals.Visible(err) || apierrors.IsNotFound(err) {
			t.engine.Recorder.Failed(local, pods.Kind, events.ReasonTokenFailed, err)
		}
		return 0, fmt.Errorf("tokens of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	t.remember(local)
	return max(time.Until(podspec.TokenRefresh(expires, seconds)), podplan.SettleTimeout), nil
}

func (t *Tokens) request(ctx context.Context, local *corev1.Pod,
	requests []podspec.TokenRequest,
) (values map[string]string, expires time.Time, seconds int64, err error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: podspec.ServiceAccountName(local)}}
	values, seconds = map[string]string{}, shortest(requests)
	for _, request := range requests {
		token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(request.ExpirationSeconds),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: local.Name, UID: local.UID},
		}}
		if request.Audience != "" {
			token.Spec.Audiences = []string{request.Audience}
		}
		if err := t.engine.Local.SubResource("token").Create(ctx, account, token); err != nil {
			return nil, time.Time{}, 0, events.Here(err)
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
