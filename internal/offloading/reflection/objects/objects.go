// SPDX-License-Identifier: Apache-2.0

// Package objects copies Services, EndpointSlices, Ingresses, ConfigMaps, Secrets, disruption budgets and custom resources of offloaded namespaces to the peer.
//
//	local object, metadata of its copy ──► kinds (pure) ──► ssa: one apply               reflector.go
//	pods and Ingresses ──► which ConfigMaps and Secrets are referenced                   references.go
//	kinds on which an earlier provider grants no rights ──► followed once it does        granted.go
//	what else some kinds need ──► hooks of parts: packages services, budgets, custom     hooks.go
//
// Each kind is a row of package kinds. It does not know what a field means, which these rows do, nor any kind by its
// name. The tests of package reflection cover it.
package objects

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Options of the reflection of objects.
type Options struct {
	// Workers returns the number of workers of the kind with this flag, given its default. 0: the kind is not reflected.
	Workers func(flag string, fallback int) int
	// ReflectIPs makes addresses of endpoints known to the peer.
	ReflectIPs bool
	// PodsSynced reports whether PodChanged was called for all pods; nil: there are none.
	PodsSynced func() bool
	// RemoteChanged is called when a copy of a kind has changed; nil: it concerns nothing else.
	RemoteChanged func(kind string, before, after client.Object)
}

// Objects copies the objects of all kinds.
type Objects struct {
	engine     *engine.Engine
	options    Options
	parts      []Part
	references references
	reflectors []*Reflector // of the rows

	mu    sync.Mutex
	added []*Reflector // by Add
}

// New adds a loop to the engine for each kind.
func New(e *engine.Engine, o Options, parts ...Part) *Objects {
	all := &Objects{engine: e, options: o, parts: parts}
	var hooks []Hooks
	for _, part := range parts {
		hooks = append(hooks, part.Attach(all)...)
	}
	for _, row := range copiedKinds() {
		if workers := o.Workers(row.Flag, row.Workers); workers > 0 && (!row.NeedsIPs || o.ReflectIPs) {
			all.reflectors = append(all.reflectors, all.newReflector(withHooks(row, hooks), workers))
		}
	}
	return all
}

// DefaultWorkers returns the default number of workers by the flag of their kind.
func DefaultWorkers() map[string]int {
	all := map[string]int{}
	for _, row := range copiedKinds() {
		all[row.Flag] = row.Workers
	}
	return all
}

// Kind returns the reflector of a row, nil if the kind is not reflected.
func (o *Objects) Kind(name string) *Reflector { return named(o.reflectors, name) }

func named(all []*Reflector, name string) *Reflector {
	if i := slices.IndexFunc(all, func(r *Reflector) bool { return r.kind.Name() == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Add adds a loop for a kind that users have added. The caller starts and stops its namespaces.
func (o *Objects) Add(kind Hooks, workers int) *Reflector {
	r := o.newReflector(kind, workers)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.added = append(o.added, r)
	return r
}

// About returns the local object that a remote event is about; nil if there is none, or if the event is about an earlier remote object of that name.
func (o *Objects) About(mapping project.NamespaceMapping, subject events.Subject) client.Object {
	r := o.Kind(subject.Kind)
	if subject.Group != "" {
		o.mu.Lock()
		r = named(o.added, subject.Kind+"."+subject.Group)
		o.mu.Unlock()
	}
	if r == nil {
		return nil
	}
	if remote := r.Remote.Get(r.RemoteKey(mapping, subject.Name)); remote != nil && remote.GetUID() == subject.UID && mapping.Reflected(remote) {
		return r.Local.Get(types.NamespacedName{Namespace: mapping.Local, Name: subject.Name})
	}
	return nil
}

// PodChanged is called for each change of a pod of the node.
func (o *Objects) PodChanged(before, after client.Object) {
	for _, part := range o.parts {
		part.PodChanged(before, after)
	}
	o.reportStaying(before, after)
	o.referrerChanged(before, after)
}
