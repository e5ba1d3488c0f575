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
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// refusedRetry is when to retry an object that the peer refused as invalid: its policies or its version may have changed.
const refusedRetry = 5 * time.Minute

var (
	errNotSynced = errors.New("a cache is not synced yet")
	errUnmanaged = errors.New("an object of that name exists in the remote cluster and is not managed by this one; rename or delete one of the two")
)

// reflector copies the objects of one kind to the peer: it reads both caches, projects the local object, and applies or deletes the remote one.
type reflector struct {
	engine  *Engine
	kind    *kind
	workers int
	queue   *queue
	local   *fanin.Source
	remote  *fanin.Source
	refused *refusals

	mu sync.Mutex
	// compared are the mappings whose remote objects have been compared with their intents since this process started.
	compared map[*mapping]bool
}

func newReflector(e *Engine, k *kind, workers int) *reflector {
	r := &reflector{engine: e, kind: k, workers: workers, queue: newQueue(workers), refused: newRefusals(), compared: map[*mapping]bool{}}
	r.queue.pause() // until the peer answers
	r.local = fanin.New(fanin.Options{
		Object: k.object, List: k.list, Trim: trimLocal,
		Client:  func(context.Context) (client.WithWatch, error) { return e.local, nil },
		Changed: func(before, after client.Object) { r.localChanged(before, after) },
		Synced:  func(namespace string) { r.synced(namespace) },
		Resumed: func(namespace string) { r.queue.retry(namespace) },
	})
	r.remote = fanin.New(fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, List: metadata(k.remoteKind), Trim: trimRemote(k.remoteKind),
		Client: e.remote.waitForClient,
		Changed: func(before, after client.Object) {
			r.remoteChanged(before, after)
			if e.tokens != nil && k.name == "Secret" {
				e.tokens.remoteChanged(before, after)
			}
		},
		Synced: func(namespace string) {
			if mapping := e.mappings.remote(namespace); mapping != nil {
				r.synced(mapping.Local)
			}
		},
		Resumed: func(namespace string) {
			if mapping := e.mappings.remote(namespace); mapping != nil {
				r.queue.retry(mapping.Local)
			}
		},
	})
	return r
}

// trimLocal drops what is never reflected.
func trimLocal(object client.Object) {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
}

// trimRemote replaces the managed fields by a fingerprint of ours, which shows whether anyone changed them. It sets the kind, which metadata lacks.
func trimRemote(kind schema.GroupVersionKind) func(client.Object) {
	return func(object client.Object) {
		ssa.Fingerprint(object, labels.OwnerReflection)
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
}

// reflector returns the reflector of a kind, nil if the kind is not reflected.
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

// work reconciles the keys of the queue until that is closed. reconcile returns after how long to reconcile the key again; 0: on the next event.
func work(ctx context.Context, q *queue, e *Engine, kind string, reconcile func(context.Context, types.NamespacedName) (requeueAfter time.Duration, err error)) {
	for {
		key, more := q.get()
		if !more {
			return
		}
		requeueAfter, err := reconcile(ctx, key)
		switch {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, errNotSynced) || errors.Is(err, errUnreachable):
		default:
			e.counts.failed(key.Namespace, kind)
			log.FromContext(ctx).V(1).Info("object not reflected; it is retried", "kind", kind, "object", key, "reason", err.Error())
		}
		q.done(key, err != nil, requeueAfter)
	}
}

func (r *reflector) start(mapping *mapping) {
	r.local.Add(mapping.ctx, mapping.Local)
	r.remote.Add(mapping.ctx, mapping.Remote)
}

func (r *reflector) stop(mapping *mapping) {
	r.local.Remove(mapping.Local)
	r.remote.Remove(mapping.Remote)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.compared, mapping)
}

func (r *reflector) localChanged(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	r.queue.add(client.ObjectKeyFromObject(object))
	if after == nil {
		r.engine.recorder.succeeded(object)
	}
	r.engine.referrerChanged(before, after)
	for _, other := range r.engine.reflectors {
		if follow := other.kind.follows[r.kind.name]; follow != nil {
			for _, key := range follow(other, object) {
				other.queue.add(key)
			}
		}
	}
}

func (r *reflector) remoteChanged(before, after client.Object) {
	object := after
	if object == nil {
		object = before
	}
	if mapping := r.engine.mappings.remote(object.GetNamespace()); mapping != nil {
		if after == nil {
			mapping.appliers[r.kind.name].Forget(client.ObjectKeyFromObject(object))
		}
		r.queue.add(types.NamespacedName{Namespace: mapping.Local, Name: r.localName(mapping, object.GetName())})
		if r.engine.events != nil {
			r.engine.events.arrived(before, after)
		}
	}
}

func (r *reflector) localName(mapping *mapping, remote string) string {
	if r.kind.localName == nil {
		return remote
	}
	return r.kind.localName(mapping.NamespaceMapping, remote)
}

func (r *reflector) remoteKey(mapping *mapping, local string) types.NamespacedName {
	if r.kind.remoteName != nil {
		local = r.kind.remoteName(mapping.NamespaceMapping, local)
	}
	return types.NamespacedName{Namespace: mapping.Remote, Name: local}
}

func (r *reflector) enqueueAll() {
	r.engine.mappings.mu.RLock()
	defer r.engine.mappings.mu.RUnlock()
	for namespace := range r.engine.mappings.byLocal {
		for _, object := range r.local.All(namespace) {
			r.queue.add(client.ObjectKeyFromObject(object))
		}
	}
}

// synced starts the first comparison of a mapping once both caches are filled: only then does the absence of an object mean something.
func (r *reflector) synced(local string) {
	mapping, _ := r.engine.mappings.local(local)
	if mapping != nil && r.local.Synced(mapping.Local) && r.remote.Synced(mapping.Remote) {
		go r.compareAll(mapping)
	}
}

// compareAll compares the whole remote objects with their intents, once per mapping. From then on the applier remembers the intents, and metadata suffices
// to see whether anyone changed an object.
func (r *reflector) compareAll(mapping *mapping) {
	err := r.engine.remote.visitRemote(mapping, r.remote, r.kind.full, func(remote client.Object) error {
		local := r.local.Get(types.NamespacedName{Namespace: mapping.Local, Name: r.localName(mapping, remote.GetName())})
		if local == nil {
			return nil
		}
		intent, err := r.kind.project(r, r.accepted(mapping), local)
		if err != nil || intent == nil {
			return err
		}
		_, err = mapping.appliers[r.kind.name].Recall(intent, remote)
		return err
	})
	r.mu.Lock()
	if err == nil && mapping.ctx.Err() == nil {
		r.compared[mapping] = true
	}
	r.mu.Unlock()
	for _, local := range r.local.All(mapping.Local) {
		r.queue.add(client.ObjectKeyFromObject(local))
	}
	for _, remote := range r.remote.All(mapping.Remote) {
		if r.manages(mapping, remote) {
			r.queue.add(types.NamespacedName{Namespace: mapping.Local, Name: r.localName(mapping, remote.GetName())})
		}
	}
}

// accepted returns the mapping without the metadata that the peer has refused.
func (r *reflector) accepted(mapping *mapping) project.NamespaceMapping {
	m := mapping.NamespaceMapping
	m.Skip = r.refused.skip(m.Skip, time.Now())
	return m
}

// manages reports whether this reflector created a remote object.
func (r *reflector) manages(mapping *mapping, remote client.Object) bool {
	return mapping.Reflected(remote) && remote.GetLabels()[labels.TokenPod] == ""
}

// reconcile applies one object to the peer, or deletes it there.
func (r *reflector) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, _ := r.engine.mappings.local(key.Namespace)
	if mapping == nil || mapping.terminating.Load() {
		return 0, nil
	}
	r.mu.Lock()
	compared := r.compared[mapping]
	r.mu.Unlock()
	if !compared {
		return 0, nil // compareAll enqueues all objects of the mapping
	}
	local := r.local.Get(key)
	remote, _ := r.remote.Get(r.remoteKey(mapping, key.Name)).(*metav1.PartialObjectMetadata)
	var intent runtime.ApplyConfiguration
	var err error
	if local != nil {
		if intent, err = r.kind.project(r, r.accepted(mapping), local); err != nil {
			return 0, err
		}
	}
	switch {
	case intent == nil && (remote == nil || !r.manages(mapping, remote) || remote.DeletionTimestamp != nil):
		return 0, nil
	case local == nil && !r.local.Current(mapping.Local):
		return 0, fmt.Errorf("%s: %w", key, errNotSynced) // it may have been created again since
	case intent == nil:
		err := r.remove(mapping, remote)
		if local != nil && visible(err) {
			r.engine.recorder.failed(local, r.kind.name, reasonNotDeleted, err)
		}
		return 0, err
	case remote != nil && !r.manages(mapping, remote):
		r.engine.recorder.failed(local, r.kind.name, reasonFailed, errUnmanaged)
		r.engine.counts.failed(key.Namespace, r.kind.name)
		return 0, nil // its deletion requeues the object
	case remote != nil && remote.DeletionTimestamp != nil:
		return 0, nil // its deletion requeues the object, which is then created again
	case remote == nil && !r.remote.Current(mapping.Remote):
		return 0, fmt.Errorf("%s: %w", key, errNotSynced) // another client may have created one since
	case remote == nil && mapping.appliers[r.kind.name].Remembers(r.kind.remoteKind, r.remoteKey(mapping, key.Name)) && mapping.appliers[r.kind.name].JustWritten(intent):
		return settleTimeout, nil // the event of our write is still to come
	}
	return r.apply(mapping, local, intent, remote)
}

func (r *reflector) apply(mapping *mapping, local client.Object, intent runtime.ApplyConfiguration, remote *metav1.PartialObjectMetadata) (time.Duration, error) {
	live, err := r.liveObject(mapping, remote)
	if err != nil {
		return 0, err
	}
	err = mapping.appliers[r.kind.name].ApplyTo(mapping.ctx, intent, live)
	switch {
	case err == nil:
		if lacks := r.refused.of(local); lacks != nil {
			if remote == nil && r.kind.exposes {
				r.engine.recorder.failed(local, r.kind.name, reasonIncomplete, lacks)
			}
			return acceptedRetry, nil
		}
		r.engine.recorder.succeeded(local)
		if remote == nil && r.kind.exposes {
			r.engine.recorder.reflected(local, r.kind.name, r.engine.options.RemoteName)
		}
		return 0, nil
	case r.refused.learn(local, err, time.Now()):
		r.engine.recorder.failed(local, r.kind.name, reasonIncomplete, r.refused.of(local))
		r.queue.add(client.ObjectKeyFromObject(local)) // at once, without what was refused
		return 0, nil
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return 0, err
	case remote != nil && mustReplace(err):
		// An immutable field changed. The event of the deletion requeues the object, which is then created again.
		return 0, r.remove(mapping, remote)
	case refused(err):
		r.engine.recorder.failed(local, r.kind.name, reasonFailed, err)
		r.engine.counts.failed(mapping.Local, r.kind.name)
		return refusedRetry, nil
	}
	if visible(err) {
		r.engine.recorder.failed(local, r.kind.name, reasonFailed, err)
	}
	return 0, err
}

// remove deletes the remote object, but not another one that has replaced it.
func (r *reflector) remove(mapping *mapping, remote *metav1.PartialObjectMetadata) error {
	err := r.engine.remote.remove(mapping.ctx, remote, metav1.DeletePropagationBackground)
	if err == nil {
		mapping.appliers[r.kind.name].Forget(client.ObjectKeyFromObject(remote))
	}
	return err
}

// remove deletes the object with this UID. It is no error if that is gone already.
func (f *remoteCluster) remove(ctx context.Context, object *metav1.PartialObjectMetadata, how metav1.DeletionPropagation) error {
	c, err := f.currentClient()
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
	target.SetGroupVersionKind(object.GroupVersionKind())
	err = c.Delete(ctx, target, client.Preconditions{UID: &object.UID}, client.PropagationPolicy(how))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil // the watch shows what there is now
	}
	return fmt.Errorf("delete %s %s/%s in the remote cluster: %w", object.Kind, object.Namespace, object.Name, err)
}
