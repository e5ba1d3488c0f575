// SPDX-License-Identifier: Apache-2.0

package resourceslice

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/internal/kube/informer"
	"liqo.io/liqo/internal/peering/grant"
)

// sliceUsage feeds the ledger from the manager's nodes and pods. It is a source of the slice controller: the
// controller waits until the ledger is complete, because half a list of pods would grant too much. All tenants are
// queued when the sums may have changed.
type sliceUsage struct {
	cache    cache.Cache
	pods     bool          // false with a plugin, which does the counting
	debounce time.Duration // changes within this time queue the tenants once
	tenants  func() []reconcile.Request

	mu       sync.Mutex
	ledger   *grant.Ledger
	capacity *grant.Capacity // nil: to be computed

	changed chan struct{} // of capacity 1
	synced  []toolscache.InformerSynced
}

func newSliceUsage(cache cache.Cache, o Options, tenants func() []reconcile.Request) *sliceUsage {
	return &sliceUsage{
		cache: cache, pods: o.PluginAddress == "", debounce: o.Debounce, tenants: tenants,
		ledger: grant.NewLedger(o.Tolerated), changed: make(chan struct{}, 1),
	}
}

// Capacity returns the current sum.
func (u *sliceUsage) Capacity() grant.Capacity {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.capacity == nil {
		u.capacity = new(u.ledger.Capacity())
	}
	return *u.capacity
}

// Start implements source.Source.
func (u *sliceUsage) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if err := u.follow(ctx, &corev1.Node{}, u.setNode, u.deleteNode); err != nil {
		return err
	}
	if u.pods {
		if err := u.follow(ctx, &corev1.Pod{}, u.setPod, u.deletePod); err != nil {
			return err
		}
	}
	go u.announce(ctx, queue)
	return nil
}

// WaitForSync implements source.SyncingSource.
func (u *sliceUsage) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), u.synced...) {
		return errors.New("nodes and pods could not be listed in time")
	}
	return nil
}

func (u *sliceUsage) follow(ctx context.Context, kind client.Object, set, forget func(any) bool) error {
	synced, err := informer.Follow(ctx, u.cache, kind, func(one any) { u.note(set, one) }, func(one any) { u.note(forget, one) })
	if err != nil {
		return err
	}
	u.synced = append(u.synced, synced)
	return nil
}

// note writes one event into the ledger.
func (u *sliceUsage) note(write func(any) bool, object any) {
	u.mu.Lock()
	changed := write(object)
	if changed {
		u.capacity = nil
	}
	u.mu.Unlock()
	if changed {
		select {
		case u.changed <- struct{}{}:
		default:
		}
	}
}

func (u *sliceUsage) setNode(object any) bool {
	node, ok := object.(*corev1.Node)
	return ok && u.ledger.SetNode(node)
}

func (u *sliceUsage) deleteNode(object any) bool {
	node, ok := object.(*corev1.Node)
	return ok && u.ledger.DeleteNode(node.Name)
}

func (u *sliceUsage) setPod(object any) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && u.ledger.SetPod(pod)
}

func (u *sliceUsage) deletePod(object any) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && u.ledger.DeletePod(pod.Namespace, pod.Name)
}

// announce queues all tenants, at most once per debounce time.
func (u *sliceUsage) announce(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.changed:
		}
		timer := time.NewTimer(u.debounce)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		for _, request := range u.tenants() {
			queue.Add(request)
		}
	}
}
