// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/ssa"
)

// refusedAgain is how soon what was refused for good is tried again: the other cluster may have changed its mind.
const refusedAgain = 5 * time.Minute

var (
	errNotSynced = errors.New("not all is known yet")
	errStranger  = errors.New("an object of that name exists in the remote cluster and is not managed by this one; rename or delete one of the two")
)

// reflector brings one kind to the peer: key in, both caches read, project, apply or delete.
type reflector struct {
	engine  *Engine
	kind    *kind
	workers int
	queue   *queue
	local   *fanin.Source
	remote  *fanin.Source

	mu sync.Mutex
	// opened are the pairs whose remote objects have been compared with what is wanted.
	opened map[*pair]bool
}

func newReflector(e *Engine, k *kind, workers int) *reflector {
	r := &reflector{engine: e, kind: k, workers: workers, queue: newQueue(workers), opened: map[*pair]bool{}}
	r.queue.pause() // until the peer answers
	r.local = fanin.New(fanin.Options{
		Object: k.object, List: k.list, Trim: trimLocal,
		Client:  func(context.Context) (client.WithWatch, error) { return e.local, nil },
		Changed: func(before, after client.Object) { r.changedHere(before, after) },
		Synced:  func(namespace string) { r.synced(namespace) },
		Resumed: func(namespace string) { r.queue.retry(namespace) },
	})
	r.remote = fanin.New(fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, List: metadata(k.there), Trim: trimRemote(k.there),
		Client: e.remote.wait,
		Changed: func(before, after client.Object) {
			r.changedThere(before, after)
			if e.tokens != nil && k.name == "Secret" {
				e.tokens.changedThere(before, after)
			}
		},
		Synced: func(namespace string) {
			if pair := e.pairs.remote(namespace); pair != nil {
				r.synced(pair.link.Local)
			}
		},
		Resumed: func(namespace string) {
			if pair := e.pairs.remote(namespace); pair != nil {
				r.queue.retry(pair.link.Local)
			}
		},
	})
	return r
}

// trimLocal drops what does not cross.
func trimLocal(object client.Object) {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
}

// trimRemote keeps the proof that nobody changed what is ours. And metadata does not know its kind.
func trimRemote(kind schema.GroupVersionKind) func(client.Object) {
	return func(object client.Object) {
		ssa.Fingerprint(object, labels.OwnerReflection)
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
}

// reflector returns the one of a kind, nil if it is off.
func (e *Engine) reflector(name string) *reflector {
	for _, r := range e.reflectors {
		if r.kind.name == name {
			return r
		}
	}
	return nil
}

func (r *reflector) run(ctx context.Context, working *sync.WaitGroup) {
	for range r.workers {
		working.Go(func() { work(ctx, r.queue, r.engine, r.kind.name, r.reconcile) })
	}
}

// work looks at what is in the queue until that is closed.
func work(ctx context.Context, q *queue, e *Engine, kind string, look func(context.Context, types.NamespacedName) (again time.Duration, err error)) {
	for {
		key, more := q.get()
		if !more {
			return
		}
		again, err := look(ctx, key)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, errNotSynced) || errors.Is(err, errUnreachable):
		default:
			e.counts.count(key.Namespace, kind, true)
			log.FromContext(ctx).V(1).Info("not reflected", "kind", kind, "object", key, "reason", err.Error())
		}
		q.done(key, err != nil, again)
	}
}

func (r *reflector) begin(pair *pair) {
	r.local.Add(pair.ctx, pair.link.Local)
	r.remote.Add(pair.ctx, pair.link.Remote)
}

func (r *reflector) end(pair *pair) {
	r.local.Remove(pair.link.Local)
	r.remote.Remove(pair.link.Remote)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opened, pair)
}

func (r *reflector) changedHere(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	r.queue.add(client.ObjectKeyFromObject(object))
	if after == nil {
		r.engine.said.settled(object)
	}
	for _, other := range r.engine.reflectors {
		if follow := other.kind.follows[r.kind.name]; follow != nil {
			for _, key := range follow(other, object) {
				other.queue.add(key)
			}
		}
	}
}

func (r *reflector) changedThere(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	if pair := r.engine.pairs.remote(object.GetNamespace()); pair != nil {
		if after == nil {
			pair.appliers[r.kind.name].Forget(client.ObjectKeyFromObject(object))
		}
		r.queue.add(types.NamespacedName{Namespace: pair.link.Local, Name: r.localName(pair, object.GetName())})
	}
}

func (r *reflector) localName(pair *pair, remote string) string {
	if r.kind.localName == nil {
		return remote
	}
	return r.kind.localName(pair.link, remote)
}

func (r *reflector) remoteKey(pair *pair, local string) types.NamespacedName {
	if r.kind.remoteName != nil {
		local = r.kind.remoteName(pair.link, local)
	}
	return types.NamespacedName{Namespace: pair.link.Remote, Name: local}
}

// again looks at all local objects.
func (r *reflector) again() {
	r.engine.pairs.mu.RLock()
	defer r.engine.pairs.mu.RUnlock()
	for namespace := range r.engine.pairs.byLocal {
		for _, object := range r.local.All(namespace) {
			r.queue.add(client.ObjectKeyFromObject(object))
		}
	}
}

// synced opens a pair once both sides are known: then absence means something.
func (r *reflector) synced(local string) {
	pair, _ := r.engine.pairs.local(local)
	if pair != nil && r.local.Synced(pair.link.Local) && r.remote.Synced(pair.link.Remote) {
		go r.open(pair)
	}
}

// open compares what is in the twin with what is wanted, whole, once: from then on the metadata says whether somebody changed it.
func (r *reflector) open(pair *pair) {
	err := r.engine.remote.recall(pair, r.remote, r.kind.full, func(remote client.Object) error {
		local := r.local.Get(types.NamespacedName{Namespace: pair.link.Local, Name: r.localName(pair, remote.GetName())})
		if local == nil {
			return nil
		}
		intent, err := r.kind.project(r, pair.link, local)
		if err != nil || intent == nil {
			return err
		}
		_, err = pair.appliers[r.kind.name].Recall(intent, remote)
		return err
	})
	r.mu.Lock()
	if err == nil && pair.ctx.Err() == nil {
		r.opened[pair] = true
	}
	r.mu.Unlock()
	for _, local := range r.local.All(pair.link.Local) {
		r.queue.add(client.ObjectKeyFromObject(local))
	}
	for _, remote := range r.remote.All(pair.link.Remote) {
		if r.ours(pair, remote) {
			r.queue.add(types.NamespacedName{Namespace: pair.link.Local, Name: r.localName(pair, remote.GetName())})
		}
	}
}

// ours are the remote objects that this reflector has made.
func (r *reflector) ours(pair *pair, remote client.Object) bool {
	return pair.link.Reflected(remote) && remote.GetLabels()[labels.TokenPod] == ""
}

// reconcile brings one object to the peer, or takes it away there.
func (r *reflector) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pair, _ := r.engine.pairs.local(key.Namespace)
	if pair == nil || pair.leaving.Load() {
		return 0, nil
	}
	r.mu.Lock()
	open := r.opened[pair]
	r.mu.Unlock()
	if !open {
		return 0, nil // opening looks at all of it
	}
	local := r.local.Get(key)
	remote, _ := r.remote.Get(r.remoteKey(pair, key.Name)).(*metav1.PartialObjectMetadata)
	var wish runtime.ApplyConfiguration
	var err error
	if local != nil {
		if wish, err = r.kind.project(r, pair.link, local); err != nil {
			return 0, err
		}
	}
	switch {
	case wish == nil && (remote == nil || !r.ours(pair, remote) || remote.DeletionTimestamp != nil):
		return 0, nil
	case local == nil && !r.local.Current(pair.link.Local):
		return 0, fmt.Errorf("%s: %w", key, errNotSynced) // it may be there again by now
	case wish == nil:
		err := r.remove(pair, remote)
		if local != nil && visible(err) {
			r.engine.said.failed(local, r.kind.name, reasonNotDeleted, err)
		}
		return 0, err
	case remote != nil && !r.ours(pair, remote):
		r.engine.said.failed(local, r.kind.name, reasonFailed, errStranger)
		r.engine.counts.count(key.Namespace, r.kind.name, true)
		return 0, nil // until it is gone
	case remote != nil && remote.DeletionTimestamp != nil:
		return 0, nil // it will be made again
	case remote == nil && !r.remote.Current(pair.link.Remote):
		return 0, fmt.Errorf("%s: %w", key, errNotSynced) // somebody else's may be there by now
	case remote == nil && pair.appliers[r.kind.name].Remembers(r.kind.there, r.remoteKey(pair, key.Name)) && pair.appliers[r.kind.name].JustWritten(wish):
		return soon, nil // its event will come
	}
	return r.apply(pair, local, wish, remote)
}

func (r *reflector) apply(pair *pair, local client.Object, wish runtime.ApplyConfiguration, remote *metav1.PartialObjectMetadata) (time.Duration, error) {
	live, err := r.whole(pair, remote)
	if err != nil {
		return 0, err
	}
	err = pair.appliers[r.kind.name].ApplyTo(pair.ctx, wish, live)
	switch {
	case err == nil:
		r.engine.said.settled(local)
		r.engine.counts.count(pair.link.Local, r.kind.name, false)
		return 0, nil
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return 0, err
	case remote != nil && mustReplace(err):
		// What cannot be changed is made anew: by the event of its deletion.
		return 0, r.remove(pair, remote)
	case refused(err):
		r.engine.said.failed(local, r.kind.name, reasonFailed, err)
		r.engine.counts.count(pair.link.Local, r.kind.name, true)
		return refusedAgain, nil
	}
	if visible(err) {
		r.engine.said.failed(local, r.kind.name, reasonFailed, err)
	}
	return 0, err
}

// remove deletes what we made, and nothing that has taken its place since.
func (r *reflector) remove(pair *pair, remote *metav1.PartialObjectMetadata) error {
	err := r.engine.remote.remove(pair.ctx, remote, metav1.DeletePropagationBackground)
	if err == nil {
		pair.appliers[r.kind.name].Forget(client.ObjectKeyFromObject(remote))
		r.engine.counts.count(pair.link.Local, r.kind.name, false)
	}
	return err
}

// remove deletes the object that has this UID. It is no error if that is gone.
func (f *farSide) remove(ctx context.Context, object *metav1.PartialObjectMetadata, how metav1.DeletionPropagation) error {
	c, err := f.now()
	if err != nil {
		return err
	}
	gone := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
	gone.SetGroupVersionKind(object.GroupVersionKind())
	err = c.Delete(ctx, gone, client.Preconditions{UID: &object.UID}, client.PropagationPolicy(how))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil // the watch tells what there is now
	}
	return fmt.Errorf("delete %s %s/%s in the remote cluster: %w", object.Kind, object.Namespace, object.Name, err)
}
