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
	"liqo.io/liqo/internal/offloading/shadow"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods,verbs=list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// errUnfilled: before the use is known, nothing is admitted.
var errUnfilled = errors.New("what peers use has not been listed yet; try again")

// Quota keeps the use of peers within their grants. One process is exact: it decides on one pod at a time and reserves its resources. Each replica of
// the controller manager counts separately, and counts the pods that others admit when it observes them. With n replicas, the quota can be
// exceeded by what the other n-1 admit before we observe it (about 10 ms).
type Quota struct {
	namespaces RemoteNamespaces
	cache      cache.Cache
	refresh    time.Duration

	mu     sync.Mutex
	ledger *shadow.Ledger
	filled bool
}

// SetupQuota counts the use of peers from the manager's cache, in every replica. It recounts after every refresh interval. With limits, the limits
// of pods count, otherwise their requests.
func SetupQuota(mgr manager.Manager, namespaces RemoteNamespaces, refresh time.Duration, limits bool) (*Quota, error) {
	q := &Quota{namespaces: namespaces, cache: mgr.GetCache(), refresh: refresh, ledger: shadow.NewLedger(limits)}
	return q, mgr.Add(q)
}

// NeedLeaderElection returns false: every replica serves the webhook.
func (q *Quota) NeedLeaderElection() bool { return false }

func (q *Quota) admit(peer string, shadowPod *vkv1alpha1.ShadowPod, now time.Time, dryRun bool) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filled {
		return "", errUnfilled
	}
	return q.ledger.Admit(peer, shadowPod, now, dryRun), nil
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
		informer, err := q.cache.GetInformer(ctx, kind.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind.object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { kind.set(ctx, object) },
			UpdateFunc: func(_, object any) { kind.set(ctx, object) },
			DeleteFunc: func(object any) {
				if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
					object = missed.Obj
				}
				kind.forget(ctx, object)
			},
		})
		if err != nil {
			return fmt.Errorf("follow %T: %w", kind.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx has ended
	}
	q.mu.Lock()
	q.filled = true
	q.mu.Unlock()
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
		q.ledger.Set(q.peerOf(ctx, &shadowPods.Items[i]), &shadowPods.Items[i])
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
		q.ledger.Set(peer, shadowPod)
	}
}

func (q *Quota) forgetPod(_ context.Context, object any) {
	if shadowPod, ok := object.(*vkv1alpha1.ShadowPod); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ledger.Delete(shadowPod)
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
	q.ledger.DropGrant(key)
	copied := slice.Labels[labels.Replicated] == "true" && slice.Labels[labels.Replication] != "true"
	if peer != "" && copied && slice.DeletionTimestamp == nil && slice.Status.Phase == sharingv1alpha1.SliceAccepted {
		q.ledger.SetGrant(peer, key, slice.Status.Resources)
	}
}

func (q *Quota) forgetSlice(_ context.Context, object any) {
	if slice, ok := object.(*sharingv1alpha1.ResourceSlice); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ledger.DropGrant(types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name})
	}
}
