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

// tokens gives remote pods tokens for the API server of this cluster: bound to the local pod, so that they end with it, and replaced
// before they end by themselves.
type tokens struct {
	engine  *Engine
	workers int
	queue   *queue
	// own is the source of Secrets, if they are not reflected.
	own *fanin.Source

	mu sync.Mutex
	// issued are those that were written and have not been seen since.
	issued map[types.UID]time.Time
}

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

func newTokens(e *Engine, workers int) *tokens {
	t := &tokens{engine: e, workers: workers, queue: newQueue(workers), issued: map[types.UID]time.Time{}}
	t.queue.pause() // until the peer answers
	if e.reflector("Secret") == nil {
		t.own = fanin.New(fanin.Options{
			Object: &metav1.PartialObjectMetadata{}, List: metadata(secretKind), Trim: trimRemote(secretKind),
			Client: e.remote.wait, Changed: t.changedThere,
		})
	}
	return t
}

func (t *tokens) run(ctx context.Context, working *sync.WaitGroup) {
	for range t.workers {
		working.Go(func() { work(ctx, t.queue, t.engine, "ServiceAccount", t.reconcile) })
	}
}

func (t *tokens) begin(pair *pair) {
	if t.own != nil {
		t.own.Add(pair.ctx, pair.link.Remote)
	}
}

func (t *tokens) end(pair *pair) {
	if t.own != nil {
		t.own.Remove(pair.link.Remote)
	}
}

func (t *tokens) secrets() *fanin.Source {
	if t.own != nil {
		return t.own
	}
	return t.engine.reflector("Secret").remote
}

func (t *tokens) changedThere(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	if object.GetLabels()[labels.TokenPod] == "" {
		return
	}
	pair := t.engine.pairs.remote(object.GetNamespace())
	if pair == nil {
		return
	}
	t.mu.Lock()
	delete(t.issued, types.UID(object.GetAnnotations()[labels.TokenPodUID]))
	t.mu.Unlock()
	t.queue.add(types.NamespacedName{Namespace: pair.link.Local, Name: t.podOf(pair, object.GetName())})
}

// podOf is the pod whose Secret has this name.
func (t *tokens) podOf(pair *pair, secret string) string {
	name := strings.TrimSuffix(secret, "-token")
	if project.TokenSecretName(name) == secret {
		return name
	}
	for _, pod := range t.engine.pods.local.All(pair.link.Local) { // a long name is shortened
		if project.TokenSecretName(pod.GetName()) == secret {
			return pod.GetName()
		}
	}
	return name
}

// ruled looks at all pods of a pair whose namespace has another policy on tokens now: renewal goes on, or stops.
func (t *tokens) ruled(pair *pair) {
	for _, pod := range t.engine.pods.local.All(pair.link.Local) {
		t.queue.add(client.ObjectKeyFromObject(pod))
	}
}

// reconcile replaces tokens in time, and takes those away whose pod is gone.
func (t *tokens) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pair, _ := t.engine.pairs.local(key.Namespace)
	if pair == nil || pair.leaving.Load() {
		return 0, nil
	}
	pods := t.engine.pods
	if !pods.local.Current(fanin.Every) || !t.secrets().Synced(pair.link.Remote) || !pods.shadows.Synced(pair.link.Remote) {
		return 0, errNotSynced // no event is sure to come later
	}
	local, _ := pods.local.Get(key).(*corev1.Pod)
	secret := t.secret(pair, key.Name)
	switch {
	case secret != nil && (local == nil || secret.Annotations[labels.TokenPodUID] != string(local.UID)):
		if secret.DeletionTimestamp != nil {
			return 0, nil
		}
		return 0, t.engine.remote.remove(pair.ctx, secret, metav1.DeletePropagationBackground)
	case local == nil || finished(local) || local.DeletionTimestamp != nil && secret == nil:
		return 0, nil
	case !pair.apiServer.Load():
		return 0, nil // what is there ends by itself; being allowed again wakes us
	}
	return t.refresh(ctx, pair, local, secret)
}

// secret is the one that holds the tokens of a pod of that name; nil if there is none of ours.
func (t *tokens) secret(pair *pair, pod string) *metav1.PartialObjectMetadata {
	there := types.NamespacedName{Namespace: pair.link.Remote, Name: project.TokenSecretName(pod)}
	secret, _ := t.secrets().Get(there).(*metav1.PartialObjectMetadata)
	if secret == nil || !pair.link.Reflected(secret) || secret.Labels[labels.TokenPod] == "" {
		return nil
	}
	return secret
}

// ensure gives a pod that is about to run its first tokens; shadow is nil then. One that is there may have lost them.
func (t *tokens) ensure(ctx context.Context, pair *pair, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) error {
	requests := project.TokenRequests(local)
	if len(requests) == 0 {
		return nil
	}
	if !t.secrets().Current(pair.link.Remote) {
		return errNotSynced
	}
	there := types.NamespacedName{Namespace: pair.link.Remote, Name: project.TokenSecretName(local.Name)}
	if other := t.secrets().Get(there); other != nil && t.secret(pair, local.Name) == nil {
		t.engine.said.failed(local, podKind, reasonTokenFailed, errStranger)
		return fmt.Errorf("secret %s: %w", there.Name, errStranger)
	}
	secret := t.secret(pair, local.Name)
	mine := secret != nil && secret.Annotations[labels.TokenPodUID] == string(local.UID)
	switch {
	case mine && (shadow != nil || left(secret, requests) > 0), t.isIssued(local.UID):
		return nil
	case shadow != nil:
		t.queue.add(client.ObjectKeyFromObject(local)) // one at a time asks for tokens of a pod
		return nil
	}
	_, err := t.issue(ctx, pair, local, requests)
	return err
}

func (t *tokens) isIssued(pod types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, is := t.issued[pod]
	if is && time.Since(at) > soon { // its event came, or will not come: the twin may have been taken away with it
		delete(t.issued, pod)
		return false
	}
	return is
}

// refresh replaces tokens that have lived four fifths of their life, and those that somebody took away.
func (t *tokens) refresh(ctx context.Context, pair *pair, local *corev1.Pod, secret *metav1.PartialObjectMetadata) (time.Duration, error) {
	requests := project.TokenRequests(local)
	if len(requests) == 0 {
		return 0, nil
	}
	switch wait := left(secret, requests); {
	case wait > 0:
		return wait, nil
	case secret != nil && t.justIssued(local) > 0:
		return t.justIssued(local), nil // they say they are old already: this clock and the API server's differ
	case secret == nil && t.isIssued(local.UID):
		return soon, nil // its event will come
	}
	shadow, _ := t.engine.pods.shadows.Get(types.NamespacedName{Namespace: pair.link.Remote, Name: local.Name}).(*metav1.PartialObjectMetadata)
	if shadow == nil {
		return 0, nil // who makes that sees to the first tokens
	}
	if mounted, err := t.mounted(pair, local, shadow); err != nil || !mounted {
		return 0, err
	}
	return t.issue(ctx, pair, local, requests)
}

// left is how long tokens need not be replaced. Zero, or less: they are to be now, or it is not known.
func left(secret *metav1.PartialObjectMetadata, requests []project.TokenRequest) time.Duration {
	if secret == nil {
		return 0
	}
	expires, err := time.Parse(time.RFC3339, secret.Annotations[labels.TokenExpiration])
	if err != nil {
		return 0
	}
	seconds := shortest(requests)
	if given, err := strconv.ParseInt(secret.Annotations[labels.TokenLifetime], 10, 64); err == nil {
		seconds = min(seconds, given)
	}
	return time.Until(project.TokenRefresh(expires, seconds))
}

// justIssued is how long tokens are not replaced that were given a moment ago, whatever they say of themselves.
func (t *tokens) justIssued(local *corev1.Pod) time.Duration {
	t.engine.pods.mu.Lock()
	defer t.engine.pods.mu.Unlock()
	if at := t.engine.pods.memory(local).tokens; !at.IsZero() {
		return max(time.Until(at.Add(soon)), 0)
	}
	return 0
}

// mounted says whether a pod that is there was made with tokens, asked now: it may have been made when its namespace had none, and a token
// that no pod reads is only there to be taken.
func (t *tokens) mounted(pair *pair, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (bool, error) {
	if !pair.link.Reflected(shadow) || shadow.Annotations[labels.Fence] != string(local.UID) {
		return false, nil // another pod's; who makes the one of this sees to its tokens
	}
	full, err := t.engine.pods.full(pair, shadow)
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

// issue asks for the tokens of a pod and writes them to the peer.
func (t *tokens) issue(ctx context.Context, pair *pair, local *corev1.Pod, requests []project.TokenRequest) (time.Duration, error) {
	if !pair.apiServer.Load() {
		return 0, errNotSynced // the policy has changed since it was looked at
	}
	values, expires, seconds, err := t.request(ctx, local, requests)
	if err == nil && !pair.apiServer.Load() {
		return 0, errNotSynced // nobody gets them
	}
	if err == nil {
		c, unreachable := t.engine.remote.now()
		if err = unreachable; err == nil {
			err = c.Apply(pair.ctx, project.TokenSecret(pair.link, local, values, expires, seconds), client.FieldOwner(labels.OwnerReflection), client.ForceOwnership)
		}
	}
	if err != nil {
		if visible(err) || apierrors.IsNotFound(err) {
			t.engine.said.failed(local, podKind, reasonTokenFailed, err)
		}
		return 0, fmt.Errorf("tokens of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	t.mu.Lock()
	t.issued[local.UID] = time.Now()
	t.mu.Unlock()
	t.engine.pods.mu.Lock()
	t.engine.pods.memory(local).tokens = time.Now()
	t.engine.pods.mu.Unlock()
	t.engine.counts.count(local.Namespace, "ServiceAccount", false)
	return max(time.Until(project.TokenRefresh(expires, seconds)), soon), nil
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
		if given := token.Spec.ExpirationSeconds; given != nil { // the answer says what became of the wish
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
