// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"sync/atomic"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/informer"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/replicate/kinds"
)

// The authorizer of the provider needs a moment to observe the role bindings of a new tenant, so retries start fast.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// absentPause is the longest pause between two attempts to read a kind that the provider does not know or does not let
	// us read.
	absentPause = 30 * time.Second
)

// peerCache is a client and a cache of our tenant namespace in the provider, from the provider's first answer until it
// stops answering.
type peerCache struct {
	conn      *connection
	client    client.WithWatch
	namespace string
	applier   *ssa.Applier
	cache     cache.Cache
	// allSynced: the caches of all kinds that every provider has are synced; synced is per kind.
	allSynced atomic.Bool
	synced    []atomic.Bool
	sizes     *sizes
	life      context.Context
	end       context.CancelFunc
}

// newPeerCache is called with the connection locked.
func newPeerCache(c *connection) *peerCache {
	p := &peerCache{
		conn: c, client: c.api.Client(), namespace: c.api.Namespace(), synced: make([]atomic.Bool, len(c.worker.r.kinds)),
		sizes: newSizes(c.worker.r.options.PeerBytes),
	}
	p.applier = ssa.NewApplier(p.client, labels.OwnerReplicate)
	p.life, p.end = context.WithCancel(c.life)
	return p
}

// syncedFor returns the cache if its objects of a kind are complete, else nil. It may be called on nil.
func (p *peerCache) syncedFor(kind int) *peerCache {
	if p == nil || !p.synced[kind].Load() {
		return nil
	}
	return p
}

// name is the name of the copy.
func (p *peerCache) name(k key) client.ObjectKey {
	return client.ObjectKey{Namespace: p.namespace, Name: k.name.Name}
}

// close may be called on nil. It does not wait for run, which may be adding to the worker's queue.
func (p *peerCache) close() {
	if p != nil {
		p.end()
	}
}

// run keeps the cache synced until it is closed.
func (p *peerCache) run() {
	defer p.end()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := p.watchAll()
		if err == nil || p.life.Err() != nil {
			return
		}
		p.conn.probeAfter(err)
		p.conn.worker.log.Info("objects of the peer cannot be watched", "reason", err.Error())
		if pause >= lastPause { // by now the authorizer has observed a new role binding
			p.conn.setReadError("the provider's API server answers, but does not let us read our requests there: " + kinds.Line(err.Error()))
		}
		select {
		case <-time.After(pause):
		case <-p.life.Done():
			return
		}
	}
}

func (p *peerCache) watchAll() error {
	ctx, cancel := context.WithCancel(p.life)
	defer cancel()
	kinds := p.conn.worker.r.kinds
	// Checked before the cache starts, because its informers back off for long after a refusal.
	for i, kind := range kinds {
		if kind.Optional {
			continue
		}
		if err := p.checkAccess(ctx, i); err != nil {
			return err
		}
	}
	made, err := cache.New(p.conn.api.Config(), cache.Options{
		HTTPClient: p.conn.api.HTTPClient(), Mapper: p.conn.api.Mapper(), Scheme: p.conn.worker.r.mgr.GetScheme(),
		DefaultNamespaces: map[string]cache.Config{p.namespace: {}},
		DefaultTransform:  p.transform,
		// A read of a kind that is not in the catalog must fail, not start an informer without the right to list.
		ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler:    p.interrupted,
	})
	if err != nil {
		return err
	}
	p.cache = made
	var filled []toolscache.DoneChecker
	for i, kind := range kinds {
		if kind.Optional {
			continue
		}
		known, err := p.watch(ctx, made, i)
		if err != nil {
			return err
		}
		filled = append(filled, known)
	}
	go func() {
		// WaitForCacheSync of the cache polls every 100 ms, which would be most of the time that a new connection takes.
		if !toolscache.WaitFor(ctx, "", filled...) || ctx.Err() != nil {
			return
		}
		for i, kind := range kinds {
			if !kind.Optional {
				p.synced[i].Store(true)
			}
		}
		p.allSynced.Store(true)
		p.conn.setReadError("")
		p.conn.worker.log.V(1).Info("cache of the peer's objects is synced")
		p.enqueueAll()
	}()
	for i, kind := range kinds {
		if kind.Optional {
			go p.watchOptional(ctx, made, i)
		}
	}
	return made.Start(ctx)
}

// checkAccess returns an error if the objects of a kind cannot be listed.
func (p *peerCache) checkAccess(ctx context.Context, kind int) error {
	list, err := p.conn.worker.r.kinds[kind].UntypedList(p.conn.worker.r.mgr.GetScheme())
	if err != nil {
		return err
	}
	return p.client.List(ctx, list, client.InNamespace(p.namespace), client.Limit(1))
}

// watch starts the informer of a kind.
func (p *peerCache) watch(ctx context.Context, made cache.Cache, kind int) (filled toolscache.DoneChecker, err error) {
	object, err := p.conn.worker.r.kinds[kind].Untyped(p.conn.worker.r.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	informer, err := made.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.enqueue(kind, object) },
		UpdateFunc: func(_, object any) { p.enqueue(kind, object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(*unstructured.Unstructured); ok {
				p.sizes.remove(sizeID(gone))
			}
			p.enqueue(kind, object)
		},
	}); err != nil {
		return nil, err
	}
	return informer.HasSyncedChecker(), nil
}

// watchOptional watches a kind that a provider need not have, as soon as it can be listed. Nothing waits for it.
func (p *peerCache) watchOptional(ctx context.Context, made cache.Cache, kind int) {
	worker := p.conn.worker
	for pause := firstPause; ; pause = min(2*pause, absentPause) {
		err := p.checkAccess(ctx, kind)
		if err == nil {
			var filled toolscache.DoneChecker
			if filled, err = p.watch(ctx, made, kind); err == nil {
				if toolscache.WaitFor(ctx, "", filled) {
					p.synced[kind].Store(true)
					p.enqueueAll()
				}
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if !apimeta.IsNoMatchError(err) {
			p.conn.probeAfter(err)
		}
		worker.log.V(1).Info("objects of a kind cannot be read in the peer", "kind", worker.r.kinds[kind].Name, "reason", err.Error())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// enqueueAll adds all objects to the queue, those of both clusters.
func (p *peerCache) enqueueAll() {
	worker := p.conn.worker
	worker.enqueueAll(p.life, p.conn.namespace, true)
	for i, kind := range worker.r.kinds {
		list, err := kind.UntypedList(worker.r.mgr.GetScheme())
		if err != nil || !p.synced[i].Load() {
			continue // checkAccess would have failed before, or the kind is not synced yet
		}
		if err := p.cache.List(p.life, list, client.InNamespace(p.namespace)); err == nil {
			eachItem(list, func(object client.Object) { p.enqueue(i, object) })
		}
	}
}

// enqueue adds the local object of a copy to the queue.
func (p *peerCache) enqueue(kind int, event any) {
	if object, ok := informer.Object(event).(client.Object); ok && p.synced[kind].Load() {
		p.conn.worker.queue.Add(key{kind: kind, name: types.NamespacedName{Namespace: p.conn.namespace, Name: object.GetName()}})
	}
}

// interrupted is called when a watch broke. The informer reconnects; a probe finds out whether the peer is gone.
func (p *peerCache) interrupted(_ context.Context, _ *toolscache.Reflector, err error) {
	if p.life.Err() == nil {
		p.conn.worker.log.V(1).Info("watch in the peer broke", "reason", err.Error())
		p.conn.probeAfter(err)
	}
}
