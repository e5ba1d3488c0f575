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

// errUnfilled: who does not know what is used lets nothing in.
var errUnfilled = errors.New("what peers use has not been listed yet; try again")

// Quota holds what peers use below what they are granted. It is exact in one process: one pod is decided on at a time, and has its room from then
// on. Each replica of the controller manager counts for itself and hears of the pods that others have let in when it sees them, so
// n replicas may together let in as much too much as n-1 of them admit in the time that news takes, some ten milliseconds.
type Quota struct {
	twins   RemoteNamespaces
	cache   cache.Cache
	refresh time.Duration

	mu     sync.Mutex
	ledger *shadow.Ledger
	filled bool
}

// SetupQuota keeps count from the manager's cache, in every replica. Every refresh it counts anew.
func SetupQuota(mgr manager.Manager, twins RemoteNamespaces, refresh time.Duration) (*Quota, error) {
	q := &Quota{twins: twins, cache: mgr.GetCache(), refresh: refresh, ledger: shadow.NewLedger()}
	return q, mgr.Add(q)
}

// NeedLeaderElection says no: every replica answers questions.
func (q *Quota) NeedLeaderElection() bool { return false }

func (q *Quota) admit(peer string, wish *vkv1alpha1.ShadowPod, now time.Time, onlyAsk bool) (string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.filled {
		return "", errUnfilled
	}
	return q.ledger.Admit(peer, wish, now, onlyAsk), nil
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
		return nil // told to end
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
				log.FromContext(ctx).Error(err, "what peers use is not counted anew, the last count stays")
			}
		}
	}
}

// recount notes everything again: what the ledger has right does not change. What is listed under the lock is still there, so a deletion that
// has been noted does not come back.
func (q *Quota) recount(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var wishes vkv1alpha1.ShadowPodList
	var granted sharingv1alpha1.ResourceSliceList
	if err := errors.Join(q.cache.List(ctx, &wishes, client.UnsafeDisableDeepCopy), q.cache.List(ctx, &granted, client.UnsafeDisableDeepCopy)); err != nil {
		return err
	}
	for i := range wishes.Items {
		q.ledger.Set(q.peerOf(ctx, &wishes.Items[i]), &wishes.Items[i])
	}
	for i := range granted.Items {
		q.note(q.tenantOf(ctx, granted.Items[i].Namespace), &granted.Items[i])
	}
	return nil
}

func (q *Quota) peerOf(ctx context.Context, wish *vkv1alpha1.ShadowPod) string {
	if peer, err := q.twins.Peer(ctx, wish.Namespace); err == nil && peer != "" {
		return peer
	}
	return wish.Labels[labels.Origin] // what was let in has the right one
}

func (q *Quota) setPod(ctx context.Context, object any) {
	if wish, ok := object.(*vkv1alpha1.ShadowPod); ok {
		peer := q.peerOf(ctx, wish)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ledger.Set(peer, wish)
	}
}

func (q *Quota) forgetPod(_ context.Context, object any) {
	if wish, ok := object.(*vkv1alpha1.ShadowPod); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ledger.Delete(wish)
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

// tenantOf is whose tenant namespace one is. Labels of the slices in it are the peer's own.
func (q *Quota) tenantOf(ctx context.Context, namespace string) string {
	var tenant corev1.Namespace
	if err := q.cache.Get(ctx, client.ObjectKey{Name: namespace}, &tenant); err != nil || tenant.Labels[labels.TenantNamespace] != "true" {
		return ""
	}
	return tenant.Labels[labels.ClusterID]
}

// note believes copies that the peer has written, whose status is ours. The status of what we ask of it is its own.
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
