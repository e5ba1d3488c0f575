// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/finalizer"
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/peering/replicate/kinds"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 15 * time.Second
	// objectTimeout bounds the work on one object: a few calls to the provider, of ten seconds at most each, and a few here.
	objectTimeout = 45 * time.Second
	// A provider that changes its objects all the time causes a burst of writes here, then two per second.
	writeBurst    = 20
	writeInterval = 500 * time.Millisecond
	// maxLimited bounds the memory of limiters. A peer has a few objects.
	maxLimited = 1024
)

var writeRate = rate.Every(writeInterval)

// worker reconciles the objects of one peer, one after the other.
type worker struct {
	r     *Replicator
	id    string
	queue workqueue.TypedRateLimitingInterface[key]
	log   logr.Logger

	mu   sync.Mutex
	conn *connection

	// waiting are the keys that come back without an event. Only the worker's goroutine uses it.
	waiting map[key]struct{}
	// deletions are the objects whose copies are being deleted. Only the worker's goroutine uses it.
	deletions map[types.UID]*deletion
	// limiters bound the status writes of each object.
	limiters *ratelimit.Limiter[types.NamespacedName]
	// fetchLimiter bounds the writes of all copies of the provider's objects.
	fetchLimiter *rate.Limiter
}

func newWorker(r *Replicator, id string) *worker {
	return &worker{
		r: r, id: id, waiting: map[key]struct{}{}, deletions: map[types.UID]*deletion{},
		limiters:     ratelimit.New[types.NamespacedName](writeRate, writeBurst, maxLimited),
		fetchLimiter: rate.NewLimiter(writeRate, writeBurst),
		log:          r.mgr.GetLogger().WithName("replicate").WithValues("peer", id),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry)),
	}
}

func (w *worker) current() *connection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn
}

func (w *worker) connect(c *connection) {
	w.mu.Lock()
	w.conn = c
	w.mu.Unlock()
	w.r.working.Go(c.run)
}

// disconnect ends the connection and cancels the worker's calls on it. It reports whether there was one.
func (w *worker) disconnect() bool {
	w.mu.Lock()
	c := w.conn
	w.conn = nil
	w.mu.Unlock()
	if c == nil {
		return false
	}
	c.end()
	return true
}

func (w *worker) run() {
	stop := context.AfterFunc(w.r.life, w.queue.ShutDown)
	defer stop()
	for {
		k, ended := w.queue.Get()
		if ended {
			return
		}
		delete(w.waiting, k)
		if k != look {
			w.work(k)
		}
		w.queue.Done(k)
		if w.r.retire(w) {
			return
		}
	}
}

// look is a key of no object, with which a worker looks whether it is still needed.
var look = key{kind: -1}

// idle reports whether the worker has nothing to do, now or later, and no connection.
func (w *worker) idle() bool {
	return w.current() == nil && w.queue.Len() == 0 && len(w.waiting)+len(w.deletions) == 0
}

func (w *worker) work(k key) {
	c := w.current()
	ctx := w.r.life
	if c != nil {
		ctx = c.life
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	requeueAfter, err := w.sync(ctx, k, c)
	if requeueAfter > 0 {
		w.waiting[k] = struct{}{}
		w.queue.AddAfter(k, requeueAfter)
	}
	switch {
	case err == nil:
		w.queue.Forget(k)
	case w.r.life.Err() != nil:
	case c != nil && c.life.Err() != nil: // disconnected meanwhile; try again without the connection
		w.queue.Add(k)
	default:
		if c != nil {
			c.probeAfter(err)
		}
		w.log.Info("object not synchronised, trying again", "kind", w.r.kinds[k.kind].Name, "object", k.name, "reason", err.Error())
		w.waiting[k] = struct{}{}
		w.queue.AddRateLimited(k)
	}
}

// sync reconciles one object and its copy. requeueAfter is when to do it again without an event.
func (w *worker) sync(ctx context.Context, k key, c *connection) (requeueAfter time.Duration, err error) {
	kind := w.r.kinds[k.kind]
	local := kind.Object()
	if err := w.r.client.Get(ctx, k.name, local); apierrors.IsNotFound(err) {
		if err := w.prune(ctx, k, c); err != nil || !kind.Mutual {
			return 0, err
		}
		return w.fetch(ctx, k, nil, c)
	} else if err != nil {
		return 0, err
	}
	if kind.Mutual && kinds.IsCopy(local, w.id) {
		return w.fetch(ctx, k, local, c)
	}
	if c != nil && c.namespace != k.name.Namespace {
		c = nil // a label alone must not open another namespace to the peer
	}
	p := c.cache().syncedFor(k.kind)
	if local.GetDeletionTimestamp() != nil {
		return w.finish(ctx, k, local, c)
	}
	if id, _ := kinds.PeerOf(local); p == nil || id != w.id || local.GetLabels()[labels.Replication] != labels.True {
		return 0, nil
	}
	remote, err := kind.Read(ctx, p.cache, w.r.mgr.GetScheme(), p.name(k))
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if remote != nil && remote.GetDeletionTimestamp() != nil {
		return 0, nil // the copy of an earlier object with this name; its status is not that of this object
	}
	if remote != nil && kinds.IsOriginal(remote) {
		return 0, fmt.Errorf(
			"the provider has its own %s with the name %s, so ours cannot be copied there; give the clusters different names", kind.Name,
			k.name.Name,
		)
	}
	if kind.Held {
		if kept, err := w.finalizer(ctx, local, controllerutil.AddFinalizer); err != nil || !kept {
			return 0, err
		}
	}
	intent := kind.SpecIntent(local, kinds.Copied(local, w.r.options.LocalClusterID, p.namespace))
	if err := p.applier.ApplyTo(ctx, intent, remote); err != nil {
		return 0, err
	}
	if remote == nil {
		return 0, nil // the event of the copy triggers the next sync
	}
	return w.writeStatus(ctx, kind, local, remote)
}

// finalizer adds or removes ours. It is added before the object is sent, so that the object stays until its copy is deleted. done is false if the
// object changed meanwhile: then its event triggers the next sync.
func (w *worker) finalizer(ctx context.Context, local client.Object, change func(client.Object, string) bool) (done bool, err error) {
	return finalizer.Patch(ctx, client.WithFieldOwner(w.r.client, labels.OwnerReplicate), local, labels.FinalizerReplication, change)
}

// writeStatus applies the provider's status to the local object. requeueAfter is set if the limiter postpones it.
func (w *worker) writeStatus(ctx context.Context, kind kinds.Kind, local, remote client.Object) (requeueAfter time.Duration, err error) {
	intent := kind.StatusIntent(local, remote)
	if intent == nil {
		return 0, nil
	}
	if !w.limiters.Allow(client.ObjectKeyFromObject(local), w.r.options.Now()) {
		return writeInterval, nil
	}
	err = w.r.applier.ApplyStatusTo(ctx, intent, local)
	return 0, client.IgnoreNotFound(err)
}

// prune deletes a copy whose object is gone: a deadline ended it, or a user removed the finalizer. The cache may be
// stale, so it reads from our API server.
func (w *worker) prune(ctx context.Context, k key, c *connection) error {
	w.r.applier.Forget(k.name)

	p := c.cache().syncedFor(k.kind)
	if p == nil || c.namespace != k.name.Namespace {
		return nil
	}
	p.applier.Forget(p.name(k))
	kind := w.r.kinds[k.kind]
	remote, err := kind.Untyped(w.r.mgr.GetScheme())
	if err != nil {
		return err
	}
	if err := p.cache.Get(ctx, p.name(k), remote); err != nil {
		return client.IgnoreNotFound(err)
	}
	if remote.GetDeletionTimestamp() != nil || !kinds.IsCopy(remote, w.r.options.LocalClusterID) {
		return nil
	}
	if err := w.r.live.Get(ctx, k.name, kind.Object()); !apierrors.IsNotFound(err) {
		return err
	}
	w.log.Info("deleting a copy without an object", "kind", kind.Name, "object", k.name)
	uid := remote.GetUID()
	return client.IgnoreNotFound(p.client.Delete(ctx, remote, client.Preconditions{UID: &uid}))
}

// enqueueAll adds objects of the peer to the queue: all, or only those that are being deleted.
func (w *worker) enqueueAll(ctx context.Context, namespace string, all bool) {
	for i, kind := range w.r.kinds {
		list := kind.List()
		if err := w.r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			w.log.Error(err, "objects not listed", "kind", kind.Name)
			continue
		}
		eachItem(list, func(object client.Object) {
			id, ours := kinds.PeerOf(object)
			if ours && id == w.id && (all || object.GetDeletionTimestamp() != nil) || all && kind.Mutual && kinds.IsCopy(object, w.id) {
				w.queue.Add(key{kind: i, name: client.ObjectKeyFromObject(object)})
			}
		})
	}
}

func eachItem(list client.ObjectList, do func(client.Object)) {
	_ = apimeta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			do(object)
		}
		return nil
	})
}
