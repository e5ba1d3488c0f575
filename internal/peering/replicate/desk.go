// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"fmt"
	"slices"
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

	"liqo.io/liqo/apis/labels"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 15 * time.Second
	// objectTime bounds the work on one object: a few calls there, of ten seconds at most each, and a few here.
	objectTime = 45 * time.Second
	// What a provider says is written down as often as it says something else: many times at first, then twice a second.
	bringBurst = 20
	bringPause = 500 * time.Millisecond
)

// desk works on the objects of one peer, one after the other.
type desk struct {
	r     *Replicator
	id    string
	queue workqueue.TypedRateLimitingInterface[key]
	log   logr.Logger

	mu   sync.Mutex
	link *link

	// leaving is known to the worker only: objects whose copy is being deleted.
	leaving map[types.UID]*leaving
	// paces, too: how fast an object may change because of what the provider says.
	paces map[types.NamespacedName]*rate.Limiter
	// fetching is the pace of all that is written here because the provider has objects for us.
	fetching *rate.Limiter
}

func newDesk(r *Replicator, id string) *desk {
	return &desk{
		r: r, id: id, leaving: map[types.UID]*leaving{}, paces: map[types.NamespacedName]*rate.Limiter{},
		fetching: newPace(),
		log:      r.mgr.GetLogger().WithName("replicate").WithValues("peer", id),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry)),
	}
}

func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(bringPause), bringBurst) }

func (d *desk) current() *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link
}

func (d *desk) plug(l *link) {
	d.mu.Lock()
	d.link = l
	d.mu.Unlock()
	d.r.working.Go(l.run)
}

// unplug takes the link away. What the worker does with it right now is cut short.
func (d *desk) unplug() bool {
	d.mu.Lock()
	l := d.link
	d.link = nil
	d.mu.Unlock()
	if l == nil {
		return false
	}
	l.end()
	return true
}

func (d *desk) run() {
	stop := context.AfterFunc(d.r.life, d.queue.ShutDown)
	defer stop()
	for {
		k, ended := d.queue.Get()
		if ended {
			return
		}
		d.work(k)
		d.queue.Done(k)
	}
}

func (d *desk) work(k key) {
	l := d.current()
	ctx := d.r.life
	if l != nil {
		ctx = l.life
	}
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	again, err := d.sync(ctx, k, l)
	if again > 0 {
		d.queue.AddAfter(k, again)
	}
	switch {
	case err == nil:
		d.queue.Forget(k)
	case d.r.life.Err() != nil:
	case l != nil && l.life.Err() != nil: // disconnected meanwhile; look again without the link
		d.queue.Add(k)
	default:
		if l != nil {
			l.suspect(err)
		}
		d.log.Info("object will be tried again", "kind", d.r.kinds[k.kind].name, "object", k.name, "reason", err.Error())
		d.queue.AddRateLimited(k)
	}
}

// sync brings one object and its copy together. again is when to look although nothing happens.
func (d *desk) sync(ctx context.Context, k key, l *link) (again time.Duration, err error) {
	kind := d.r.kinds[k.kind]
	local := kind.object()
	if err := d.r.here.Get(ctx, k.name, local); apierrors.IsNotFound(err) {
		if err := d.prune(ctx, k, l); err != nil || !kind.mutual {
			return 0, err
		}
		return d.fetch(ctx, k, nil, l)
	} else if err != nil {
		return 0, err
	}
	if kind.mutual && isCopy(local, d.id) {
		return d.fetch(ctx, k, local, l)
	}
	if l != nil && l.namespace != k.name.Namespace {
		l = nil // a label alone does not open another namespace to the peer
	}
	s := l.session().knowing(k.kind)
	if local.GetDeletionTimestamp() != nil {
		return d.finish(ctx, k, local, l)
	}
	if id, _ := peerOf(local); s == nil || id != d.id || local.GetLabels()[labels.Replication] != yes {
		return 0, nil
	}
	remote, err := s.remote(ctx, kind, s.cache, s.name(k))
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if remote != nil && remote.GetDeletionTimestamp() != nil {
		return 0, nil // of an object that was there before this one; what it says is not said of this one
	}
	if remote != nil && isOriginal(remote) {
		return 0, fmt.Errorf("the provider has a %s of its own called %s, so ours cannot be copied there; give the clusters different names", kind.name, k.name.Name)
	}
	if kind.held {
		if kept, err := d.keep(ctx, local); err != nil || !kept {
			return 0, err
		}
	}
	intent := kind.there(local, copied(local, d.r.options.LocalClusterID, s.namespace))
	if err := s.there.ApplyTo(ctx, intent, remote); err != nil {
		return 0, err
	}
	if remote == nil {
		return 0, nil // the copy's event brings us here again
	}
	return d.bring(ctx, kind, local, remote)
}

// keep makes sure, before anything is sent, that the object cannot vanish without us. If somebody changed the object
// meanwhile, its event brings us here again.
func (d *desk) keep(ctx context.Context, local client.Object) (kept bool, err error) {
	if slices.Contains(local.GetFinalizers(), labels.FinalizerReplication) {
		return true, nil
	}
	before := local.DeepCopyObject().(client.Object)
	local.SetFinalizers(append(slices.Clone(local.GetFinalizers()), labels.FinalizerReplication))
	return d.patch(ctx, local, before)
}

func (d *desk) patch(ctx context.Context, local, before client.Object) (done bool, err error) {
	err = d.r.here.Patch(ctx, local, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(labels.OwnerReplicate))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// bring writes what the provider says into the status of the local object. again is when, if it says too much.
func (d *desk) bring(ctx context.Context, kind kind, local, remote client.Object) (again time.Duration, err error) {
	intent := kind.here(local, remote)
	if intent == nil {
		return 0, nil
	}
	name := client.ObjectKeyFromObject(local)
	pace, ok := d.paces[name]
	if !ok {
		pace = newPace()
		d.paces[name] = pace
	}
	if !pace.Allow() {
		return bringPause, nil
	}
	err = d.r.own.ApplyStatusTo(ctx, intent, local)
	return 0, client.IgnoreNotFound(err)
}

// prune deletes a copy whose object is gone: a deadline ended it, or somebody took the finalizer away by hand. The
// cache may be behind, so our API server is asked.
func (d *desk) prune(ctx context.Context, k key, l *link) error {
	d.r.own.Forget(k.name)
	delete(d.paces, k.name)
	s := l.session().knowing(k.kind)
	if s == nil || l.namespace != k.name.Namespace {
		return nil
	}
	s.there.Forget(s.name(k))
	kind := d.r.kinds[k.kind]
	remote, err := kind.untyped(d.r.mgr.GetScheme())
	if err != nil {
		return err
	}
	if err := s.cache.Get(ctx, s.name(k), remote); err != nil {
		return client.IgnoreNotFound(err)
	}
	if remote.GetDeletionTimestamp() != nil || !isCopy(remote, d.r.options.LocalClusterID) {
		return nil
	}
	if err := d.r.live.Get(ctx, k.name, kind.object()); !apierrors.IsNotFound(err) {
		return err
	}
	d.log.Info("copy without an object is deleted", "kind", kind.name, "object", k.name)
	uid := remote.GetUID()
	return client.IgnoreNotFound(s.client.Delete(ctx, remote, client.Preconditions{UID: &uid}))
}

// look puts objects of the peer into the queue: all, or only those on their way out.
func (d *desk) look(ctx context.Context, namespace string, all bool) {
	for i, kind := range d.r.kinds {
		list := kind.list()
		if err := d.r.here.List(ctx, list, client.InNamespace(namespace)); err != nil {
			d.log.Error(err, "objects cannot be listed", "kind", kind.name)
			continue
		}
		eachItem(list, func(object client.Object) {
			id, ours := peerOf(object)
			if ours && id == d.id && (all || object.GetDeletionTimestamp() != nil) || all && kind.mutual && isCopy(object, d.id) {
				d.queue.Add(key{kind: i, name: client.ObjectKeyFromObject(object)})
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
