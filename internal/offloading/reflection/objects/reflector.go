// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// Reflector copies the objects of one kind to the peer: it reads both caches, projects the local object, and applies or deletes the remote one.
type Reflector struct {
	// Queue holds the keys of local objects, Local caches these, Remote caches the metadata of their copies.
	Queue         *fairqueue.Queue
	Local, Remote *fanin.Source

	*Objects
	kind    Hooks
	refused *refusals.Metadata
	pacer   pacer
	granted granted
}

// newReflector adds the loop of a kind to the engine.
func (o *Objects) newReflector(k Hooks, workers int) *Reflector {
	trim := k.Trim
	if trim == nil {
		trim = engine.TrimLocal
	}
	r := &Reflector{Objects: o, kind: k, Queue: fairqueue.NewQueue(workers), refused: refusals.NewMetadata()}
	e := o.engine
	r.Local = fanin.New(fanin.Options{
		Object: Empty(k.Local), List: EmptyList(k.Local), Trim: trim,
		Client:  func(context.Context) (client.WithWatch, error) { return e.Local, nil },
		Changed: r.localChanged,
		Synced:  r.synced,
		Resumed: r.Queue.Retry,
	})
	remote := fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, List: engine.Metadata(k.Remote.GroupVersionKind), Trim: engine.TrimRemote(k.Remote.GroupVersionKind),
		Client: e.Remote.WaitForClient, Changed: r.remoteChanged,
		Synced: func(namespace string) {
			if mapping := e.Namespaces.Remote(namespace); mapping != nil {
				r.synced(mapping.Local)
			}
		},
		Resumed: func(namespace string) {
			if mapping := e.Namespaces.Remote(namespace); mapping != nil {
				r.Queue.Retry(mapping.Local)
			}
		},
	}
	if k.Optional != nil {
		remote.Refused = r.lostRights
	}
	r.Remote = fanin.New(remote)
	loop := &engine.Loop{
		Name: k.Name(), Workers: workers, Queue: r.Queue, Process: r.reconcile, Start: r.Start, Freeze: r.stop, Stop: r.stop,
		Reflected: func(mapping *engine.Mapping) int {
			return engine.Amount(r.Remote.All(mapping.Remote), func(remote client.Object) bool { return r.Manages(mapping, remote) })
		},
	}
	if k.NeedsIPs {
		loop.Translate = func() { e.Namespaces.Each(r.Enqueue) }
	}
	if k.Elsewhere != nil {
		loop.Changed = func() { e.Namespaces.Each(r.enqueueElsewhere) }
	}
	if k.ByReference {
		loop.ReferencesChanged = r.Enqueue
	}
	if k.Optional != nil {
		loop.Start = r.startOnceGranted
	}
	if k.Custom {
		loop.Start, loop.Freeze, loop.Stop = nil, nil, nil // not all mappings have the kind
	}
	e.Add(loop)
	return r
}

// Start follows a namespace and its remote namespace.
func (r *Reflector) Start(mapping *engine.Mapping) {
	if mapping.Terminating() {
		return
	}
	r.Local.Add(mapping.Context, mapping.Local)
	r.Remote.Add(mapping.Context, mapping.Remote)
}

func (r *Reflector) stop(mapping *engine.Mapping) {
	r.Local.Remove(mapping.Local)
	r.references.forget(r.kind.Name(), mapping.Local) // afterwards: without the cache, no Secret counts as unreferenced
	if r.kind.Optional != nil {
		r.granted.end(mapping, func() { r.Remote.Remove(mapping.Remote) })
	} else {
		r.Remote.Remove(mapping.Remote)
	}
	if r.kind.Stopped != nil {
		r.kind.Stopped(mapping)
	}
}

func (r *Reflector) localChanged(before, after client.Object) {
	object := engine.Either(before, after)
	if r.kind.Stale != nil && before != nil && (after == nil || after.GetUID() != before.GetUID()) {
		r.readAgain(client.ObjectKeyFromObject(object)) // before a worker sees what is next
	}
	r.Queue.Add(client.ObjectKeyFromObject(object))
	if after == nil {
		r.engine.Recorder.Resolved(object)
		r.pacer.forget(client.ObjectKeyFromObject(object))
	}
	if r.kind.Changed != nil {
		r.kind.Changed(before, after)
	}
	r.referrerChanged(before, after)
}

func (r *Reflector) remoteChanged(before, after client.Object) {
	object := engine.Either(before, after)
	if mapping := r.engine.Namespaces.Remote(object.GetNamespace()); mapping != nil {
		if after == nil {
			mapping.Applier(r.kind.Name()).Forget(client.ObjectKeyFromObject(object))
			if r.kind.Gone != nil {
				r.kind.Gone(mapping, object)
			}
		}
		r.Queue.Add(types.NamespacedName{Namespace: mapping.Local, Name: r.localName(mapping, object.GetName())})
		if r.options.RemoteChanged != nil {
			r.options.RemoteChanged(r.kind.Name(), before, after)
		}
	}
}

func (r *Reflector) localName(mapping *engine.Mapping, remote string) string {
	if r.kind.LocalName == nil {
		return remote
	}
	return r.kind.LocalName(mapping.NamespaceMapping, remote)
}

// RemoteKey returns the name of the copy of a local object.
func (r *Reflector) RemoteKey(mapping project.NamespaceMapping, local string) types.NamespacedName {
	if r.kind.RemoteName != nil {
		local = r.kind.RemoteName(mapping, local)
	}
	return types.NamespacedName{Namespace: mapping.Remote, Name: local}
}

// Enqueue reconciles all local objects of a mapping.
func (r *Reflector) Enqueue(mapping *engine.Mapping) {
	for _, object := range r.Local.All(mapping.Local) {
		r.Queue.Add(client.ObjectKeyFromObject(object))
	}
}

// synced starts the first comparison of a mapping once both caches are filled: only then does the absence of an object mean something.
func (r *Reflector) synced(local string) {
	mapping, _ := r.engine.Namespaces.Local(local)
	if mapping != nil && r.Local.Synced(mapping.Local) && r.Remote.Synced(mapping.Remote) {
		go r.compareAll(mapping)
	}
}

// compareAll compares the whole remote objects with their intents, once per mapping. From then on the applier remembers the intents, and metadata suffices
// to see whether anyone changed an object.
func (r *Reflector) compareAll(mapping *engine.Mapping) {
	if r.kind.Recall != nil {
		r.kind.Recall(mapping)
	}
	err := r.engine.Visit(mapping, r.Remote, EmptyList(r.kind.Remote), func(remote client.Object) error {
		local := r.Local.Get(types.NamespacedName{Namespace: mapping.Local, Name: r.localName(mapping, remote.GetName())})
		if local == nil {
			return nil
		}
		if r.kind.Compares != nil {
			r.kind.Compares(client.ObjectKeyFromObject(local), remote)
		}
		intent, err := r.project(r.accepted(mapping), local)
		if err != nil || intent == nil || r.isStale(intent, remote) {
			return err
		}
		_, err = mapping.Applier(r.kind.Name()).Recall(intent, remote)
		return err
	})
	if err == nil && mapping.Context.Err() == nil {
		mapping.SetCompared(r.kind.Name())
	}
	r.Enqueue(mapping)
	for _, remote := range r.Remote.All(mapping.Remote) {
		if r.Manages(mapping, remote) {
			r.Queue.Add(types.NamespacedName{Namespace: mapping.Local, Name: r.localName(mapping, remote.GetName())})
		}
	}
}

// accepted returns the mapping without the metadata that the peer has refused.
func (r *Reflector) accepted(mapping *engine.Mapping) project.NamespaceMapping {
	m := mapping.NamespaceMapping
	m.Skip = r.refused.Skip(m.Skip, time.Now())
	return m
}

// Manages reports whether this reflector created a remote object.
func (r *Reflector) Manages(mapping *engine.Mapping, remote client.Object) bool {
	return mapping.Reflected(remote) && remote.GetLabels()[labels.TokenPod] == ""
}

// reconcile applies one object to the peer, or deletes it there.
func (r *Reflector) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, _ := r.engine.Namespaces.Local(key.Namespace)
	if mapping == nil || mapping.Terminating() {
		return 0, nil
	}
	if r.kind.Optional != nil && r.reportUngranted(mapping, key) {
		return 0, nil // its rights enqueue all objects of the mapping
	}
	if !mapping.Compared(r.kind.Name()) {
		return 0, nil // compareAll enqueues all objects of the mapping
	}
	local := r.Local.Get(key)
	remote, _ := r.Remote.Get(r.RemoteKey(mapping.NamespaceMapping, key.Name)).(*metav1.PartialObjectMetadata)
	var intent runtime.ApplyConfiguration
	var err error
	if local != nil {
		intent, err = r.project(r.accepted(mapping), local)
		if errors.Is(err, project.ErrRefused) {
			r.engine.Recorder.Changed(local, r.kind.Name(), events.ReasonFailed, err)
			return refusals.Retry, r.outdated(mapping, local, remote, false)
		}
		if err != nil {
			return 0, err
		}
	}
	switch {
	case intent == nil && (remote == nil || !r.Manages(mapping, remote) || remote.DeletionTimestamp != nil):
		return 0, nil
	case local == nil && !r.Local.Current(mapping.Local):
		return 0, fmt.Errorf("%s: %w", key, engine.ErrNotSynced) // it may have been created again since
	case intent == nil:
		err := r.Remove(mapping, remote)
		if local != nil && refusals.Visible(err) {
			r.engine.Recorder.Failed(local, r.kind.Name(), events.ReasonNotDeleted, err)
		}
		return 0, err
	case remote != nil && !r.Manages(mapping, remote):
		r.engine.Recorder.Failed(local, r.kind.Name(), events.ReasonFailed, engine.ErrUnmanaged)
		r.engine.CountFailure(key.Namespace, r.kind.Name())
		return 0, nil // its deletion requeues the object
	case remote != nil && remote.DeletionTimestamp != nil:
		return 0, nil // its deletion requeues the object, which is then created again
	case remote == nil && !r.Remote.Current(mapping.Remote):
		return 0, fmt.Errorf("%s: %w", key, engine.ErrNotSynced) // another client may have created one since
	case remote == nil && mapping.Applier(r.kind.Name()).Remembers(r.kind.Remote.GroupVersionKind, r.RemoteKey(mapping.NamespaceMapping, key.Name)) &&
		mapping.Applier(r.kind.Name()).JustWritten(intent):
		return podplan.SettleTimeout, nil // the event of our write is still to come
	}
	if r.kind.Hold != nil && remote != nil {
		if wait := r.kind.Hold(mapping.NamespaceMapping, local); wait > 0 {
			return wait, nil
		}
	}
	return r.apply(mapping, local, intent, remote)
}

func (r *Reflector) apply(mapping *engine.Mapping, local client.Object, intent runtime.ApplyConfiguration,
	remote *metav1.PartialObjectMetadata,
) (time.Duration, error) {
	live, err := r.liveObject(mapping, remote)
	if err != nil {
		return 0, err
	}
	if live != nil && r.isStale(intent, live) {
		return 0, r.Remove(mapping, remote) // the event of its deletion requeues the object, which is then created again
	}
	if wait := r.slow(mapping, local, intent, live); wait > 0 {
		return wait, nil
	}
	applier := mapping.Applier(r.kind.Name())
	// The cache may not have shown our own creation yet when the object changes.
	creates := remote == nil && !applier.Remembers(r.kind.Remote.GroupVersionKind, r.RemoteKey(mapping.NamespaceMapping, local.GetName()))
	missing := r.missing(applier, local, intent, live)
	err = applier.ApplyTo(mapping.Context, intent, live)
	switch {
	case err == nil:
		r.granted.allow(mapping, local.GetName())
		return r.applied(local, intent, creates, missing), nil
	case r.refused.Learn(local, err, time.Now()):
		r.engine.Recorder.Changed(local, r.kind.Name(), events.ReasonIncomplete, r.refused.Lacks(local))
		r.Queue.Add(client.ObjectKeyFromObject(local)) // at once, without what was refused
		return 0, nil
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return 0, err
	case remote != nil && !r.kind.Custom && refusals.MustReplace(err):
		// An immutable field changed. The event of the deletion requeues the object, which is then created again. A custom resource may stand for data, which its
		// deletion would delete.
		return 0, r.Remove(mapping, remote)
	case r.kind.Optional != nil && refusals.Visible(err):
		return r.withdraw(mapping, local, remote, err)
	case r.kind.Lower != nil && r.kind.Lower(mapping, local, intent, remote, err):
		r.Queue.Add(client.ObjectKeyFromObject(local)) // at once, with the type that is always accepted
		return 0, nil
	case refusals.Final(err):
		r.engine.Recorder.Failed(local, r.kind.Name(), events.ReasonFailed, err)
		r.engine.CountFailure(mapping.Local, r.kind.Name())
		return refusals.Retry, r.outdated(mapping, local, remote, true)
	}
	switch {
	case refusals.Visible(err):
		r.engine.Recorder.Failed(local, r.kind.Name(), events.ReasonFailed, err)
		err = errors.Join(err, r.outdated(mapping, local, remote, true))
	case refusals.Temporary(err):
		r.engine.Recorder.Waits(local, r.kind.Name(), err)
	}
	return 0, err
}

// outdated removes a copy that must not stay as it is, although no other can be written now. refused: the peer refuses the other one.
func (r *Reflector) outdated(mapping *engine.Mapping, local client.Object, remote *metav1.PartialObjectMetadata, refused bool) error {
	if r.kind.Outdated == nil || remote == nil || remote.DeletionTimestamp != nil || !r.Manages(mapping, remote) {
		return nil
	}
	if is, err := r.kind.Outdated(mapping, local, remote, refused); err != nil || !is {
		return err
	}
	return r.Remove(mapping, remote)
}

// slow returns how long to wait before the copy of a custom resource is corrected.
func (r *Reflector) slow(mapping *engine.Mapping, local client.Object, intent runtime.ApplyConfiguration, live client.Object) time.Duration {
	if !r.kind.Custom || live == nil || !mapping.Applier(r.kind.Name()).Contested(intent, live) {
		return 0
	}
	wait := r.pacer.wait(client.ObjectKeyFromObject(local), time.Now())
	if wait > firstCorrection {
		r.engine.Recorder.Failed(local, r.kind.Name(), events.ReasonFailed, errContested)
	}
	return wait
}

// errContested does not have the time to wait, so that its events have one text.
var errContested = errors.New("a client in the remote cluster keeps changing fields of the copy that this object sets, such as an autoscaler; they are set " +
	"again, ever more rarely: " +
	"leave these fields out here, or keep that client from them")

// Remove deletes the remote object, but not another one that has replaced it.
func (r *Reflector) Remove(mapping *engine.Mapping, remote *metav1.PartialObjectMetadata) error {
	if r.kind.Removes != nil {
		r.kind.Removes(mapping, remote)
	}
	err := r.engine.Remote.Delete(mapping.Context, remote, metav1.DeletePropagationBackground)
	if err == nil {
		mapping.Applier(r.kind.Name()).Forget(client.ObjectKeyFromObject(remote))
	}
	return err
}
