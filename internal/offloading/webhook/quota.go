// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/informer"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/shadow"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods,verbs=list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

// errUnfilled: before the use is known, nothing is admitted.
var errUnfilled = errors.New("what peers use has not been listed yet; try again")

// Quota keeps the use of peers within their grants. The webhook refuses what does not fit beside the ShadowPods that are known, and changes nothing, as
// a review may be forged. The controller, of which one runs, reserves what a pod needs before it creates the pod: so many ShadowPods that are written at
// the same time may pass the webhook, and those that do not fit wait for their pods.
type Quota struct {
	namespaces RemoteNamespaces
	cache      cache.Cache
	refresh    time.Duration

	mu sync.Mutex
	// known counts all ShadowPods, reserved those whose pods were created, or are about to be.
	known, reserved *quota.Ledger
	filled          bool
}

// SetupQuota counts the use of peers from the manager's cache, in every replica. It recounts after every refresh interval. With limits, the limits
// of pods count, otherwise their requests; the defaults count at least.
func SetupQuota(mgr manager.Manager, namespaces RemoteNamespaces, refresh time.Duration, limits bool, defaults quota.Defaults) (*Quota, error) {
	q := &Quota{
		namespaces: namespaces, cache: mgr.GetCache(), refresh: refresh,
		known: quota.NewLedger(limits, defaults), reserved: quota.NewLedger(limits, defaults),
	}
	return q, mgr.Add(q)
}

// NeedLeaderElection returns false: every replica serves the webhook.
func (q *Quota) NeedLeaderElection() bool { return false }

// fits returns why a new ShadowPod is refused; nothing if it is not.
func (q *Quota) fits(peer string, shadowPod *vkv1alpha1.ShadowPod, now time.Time) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filled {
		return "", errUnfilled
	}
	return q.known.Admit(peer, shadowPod, now, true), nil
}

// grows returns why a ShadowPod must not get the resources that an update gives it; nothing if it may.
func (q *Quota) grows(peer string, shadowPod *vkv1alpha1.ShadowPod) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filled {
		return "", errUnfilled
	}
	return q.known.Grow(peer, shadowPod), nil
}

// Reserve returns why the pod of a ShadowPod must not be created or resized now. If it returns nothing, the pod counts, with the largest size that it had,
// until its ShadowPod has ended or is gone, or until Release. pod is the pod to be resized; nil if there is none.
func (q *Quota) Reserve(peer string, shadowPod *vkv1alpha1.ShadowPod, pod *corev1.Pod, now time.Time) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filled {
		return "", errUnfilled
	}
	var problem string
	if q.reserved.Has(shadowPod) { // its pod is resized, or created again even if the grant has become smaller
		if pod != nil {
			q.reserved.Prove(shadowPod, &pod.Spec)
		}
		problem = q.reserved.Grow(peer, shadowPod)
	} else {
		problem = q.reserved.Admit(peer, shadowPod, now, true)
	}
	if problem == "" {
		q.reserved.Set(peer, shadowPod)
	}
	return problem, nil
}

// Release undoes Reserve: the API server has refused the pod.
func (q *Quota) Release(shadowPod *vkv1alpha1.ShadowPod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reserved.Delete(shadowPod)
}

// Start follows ShadowPods and slices until ctx ends.
func (q *Quota) Start(ctx context.Context) error {
	synced := []toolscache.InformerSynced{}
	for _, kind := range []struct {
		object      client.Object
		set, forget func(context.Context, any)
	}{
		{&vkv1alpha1.ShadowPod{}, q.setPod, q.forgetPod},
		{&sharingv1alpha1.ResourceSlice{}, q.setSlice, q.forgetSlice},
	} {
		done, err := informer.Follow(ctx, q.cache, kind.object, func(object any) { kind.set(ctx, object) }, func(object any) { kind.forget(ctx, object) })
		if err != nil {
			return err
		}
		synced = append(synced, done)
	}
	pods, err := q.cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if _, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { q.followPod(ctx, nil, now) },
		UpdateFunc: func(old, now any) { q.followPod(ctx, old, now) },
	}); err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx has ended
	}
	if err := q.fill(ctx); err != nil {
		return err
	}
	ticker := time.NewTicker(q.refresh)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := q.recount(ctx); err != nil {
				log.FromContext(ctx).Error(err, "use of peers not recounted, the last count stays")
			}
		}
	}
}

// fill counts the pods that exist: another controller manager created them.
func (q *Quota) fill(ctx context.Context) error {
	var pods corev1.PodList
	var shadowPods vkv1alpha1.ShadowPodList
	if err := q.cache.List(ctx, &pods, client.MatchingLabels{labels.ManagedBy: labels.ManagedByShadowPod}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pods of peers: %w", err)
	}
	if err := q.cache.List(ctx, &shadowPods, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list shadow pods: %w", err)
	}
	revisions := map[string]string{} // by owner
	for i := range pods.Items {
		revisions[lifecycle.Owner(&pods.Items[i])] = pods.Items[i].Annotations[labels.ShadowPodRevision]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range shadowPods.Items {
		pod := &shadowPods.Items[i]
		switch revision, ok := revisions[string(pod.UID)]; {
		case !ok:
		case revision == shadow.Revision(pod):
			q.reserved.Set(q.peerOf(ctx, pod), pod)
		default:
			q.reserved.SetUnproven(q.peerOf(ctx, pod), pod)
		}
	}
	q.filled = true
	return nil
}

// recount records all objects again; entries that are right do not change. It lists under the lock, so it does not record an object whose
// deletion was recorded before.
func (q *Quota) recount(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var shadowPods vkv1alpha1.ShadowPodList
	var granted sharingv1alpha1.ResourceSliceList
	if err := errors.Join(q.cache.List(ctx, &shadowPods, client.UnsafeDisableDeepCopy), q.cache.List(ctx, &granted, client.UnsafeDisableDeepCopy)); err != nil {
		return err
	}
	for i := range shadowPods.Items {
		q.set(ctx, q.peerOf(ctx, &shadowPods.Items[i]), &shadowPods.Items[i])
	}
	for i := range granted.Items {
		q.note(q.tenantOf(ctx, granted.Items[i].Namespace), &granted.Items[i])
	}
	return nil
}

func (q *Quota) peerOf(ctx context.Context, shadowPod *vkv1alpha1.ShadowPod) string {
	if peer, err := q.namespaces.Peer(ctx, shadowPod.Namespace); err == nil && peer != "" {
		return peer
	}
	return shadowPod.Labels[labels.Origin] // the webhook admits only the right value
}

func (q *Quota) setPod(ctx context.Context, object any) {
	if shadowPod, ok := object.(*vkv1alpha1.ShadowPod); ok {
		peer := q.peerOf(ctx, shadowPod)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.set(ctx, peer, shadowPod)
	}
}

// set counts a ShadowPod. It is reserved, and a larger size of it, only once its pod has that: the controller of another replica has reserved it. Ours
// reserves before. The phase would not show that there is a pod: it is recorded later, or not at all.
func (q *Quota) set(ctx context.Context, peer string, shadowPod *vkv1alpha1.ShadowPod) {
	q.known.Set(peer, shadowPod)
	if podphase.Final(shadowPod.Status.Phase) {
		q.reserved.Set(peer, shadowPod)
		return
	}
	var pod corev1.Pod
	if q.cache.Get(ctx, client.ObjectKeyFromObject(shadowPod), &pod, client.UnsafeDisableDeepCopy) != nil || lifecycle.Owner(&pod) != string(shadowPod.UID) {
		return
	}
	switch {
	case pod.Annotations[labels.ShadowPodRevision] == shadow.Revision(shadowPod):
		q.reserved.Set(peer, shadowPod)
	case !q.reserved.Has(shadowPod):
		q.reserved.SetUnproven(peer, shadowPod)
	}
}

// followPod counts a pod that the controller created, and the size that it got later: that controller may run in another replica.
func (q *Quota) followPod(ctx context.Context, old, now any) {
	after, isPod := now.(*corev1.Pod)
	if !isPod || after.Labels[labels.ManagedBy] != labels.ManagedByShadowPod {
		return
	}
	if before, wasPod := old.(*corev1.Pod); wasPod && before.Annotations[labels.ShadowPodRevision] == after.Annotations[labels.ShadowPodRevision] {
		return
	}
	var shadowPod, current vkv1alpha1.ShadowPod
	key := client.ObjectKeyFromObject(after)
	if q.cache.Get(ctx, key, &shadowPod, client.UnsafeDisableDeepCopy) != nil {
		return
	}
	peer := q.peerOf(ctx, &shadowPod)
	q.mu.Lock()
	defer q.mu.Unlock()
	// Events of ShadowPods arrive in another goroutine: forgetPod may have run since the first read, and would not run again. It needs the lock, and the cache no
	// longer has the ShadowPod before it is called.
	if q.cache.Get(ctx, key, &current, client.UnsafeDisableDeepCopy) == nil && current.UID == shadowPod.UID {
		q.set(ctx, peer, &current)
	}
}

func (q *Quota) forgetPod(_ context.Context, object any) {
	if shadowPod, ok := object.(*vkv1alpha1.ShadowPod); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.known.Delete(shadowPod)
		q.reserved.Delete(shadowPod)
	}
}

func (q *Quota) setSlice(ctx context.Context, object any) {
	if slice, ok := object.(*sharingv1alpha1.ResourceSlice); ok {
		peer := q.tenantOf(ctx, slice.Namespace)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.note(peer, slice)
	}
}

// tenantOf returns the peer whose tenant namespace this is. The labels of the slices in it are no proof: the peer writes them.
func (q *Quota) tenantOf(ctx context.Context, namespace string) string {
	var tenant corev1.Namespace
	if err := q.cache.Get(ctx, client.ObjectKey{Name: namespace}, &tenant); err != nil || tenant.Labels[labels.TenantNamespace] != "true" {
		return ""
	}
	return tenant.Labels[labels.ClusterID]
}

// note records the grant of a slice. Only the status of slices that the peer replicated to us is ours; the status of our own requests to
// the peer is written by the peer.
func (q *Quota) note(peer string, slice *sharingv1alpha1.ResourceSlice) {
	key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	q.known.DropGrant(key)
	q.reserved.DropGrant(key)
	copied := slice.Labels[labels.Replicated] == "true" && slice.Labels[labels.Replication] != "true"
	if peer != "" && copied && slice.DeletionTimestamp == nil && slice.Status.Phase == sharingv1alpha1.SliceAccepted {
		q.known.SetGrant(peer, key, slice.Status.Resources)
		q.reserved.SetGrant(peer, key, slice.Status.Resources)
	}
}

func (q *Quota) forgetSlice(_ context.Context, object any) {
	if slice, ok := object.(*sharingv1alpha1.ResourceSlice); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.known.DropGrant(types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name})
		q.reserved.DropGrant(types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name})
	}
}
