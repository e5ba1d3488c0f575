// SPDX-License-Identifier: Apache-2.0

// Package objects copies Services, EndpointSlices, Ingresses, ConfigMaps, Secrets, disruption budgets and custom resources of offloaded namespaces to the peer.
//
//	local object, metadata of its copy ──► kinds, project (pure) ──► ssa: one apply      catalog.go, reflector.go
//	pods and Ingresses ──► which ConfigMaps and Secrets are referenced                   references.go
//	pods and selectors ──► which endpoints in the peer it does not find itself           places.go, gated.go, handover.go
//	names of Services in other namespaces ──► those of their copies                      elsewhere.go
//	pods of the node, status of budgets ──► which number the peer gets                   budgets.go, and package disruption (pure)
//	kinds on which an earlier provider grants no rights ──► followed once it does        granted.go
//	types of Services that the peer refuses ──► copies of type ClusterIP meanwhile       lowered.go
//	kinds that a user lists ──► further rows of the catalogue                            custom.go
//	copies of custom resources ──► project ──► status of the local object                status.go
//
// Each kind is a row of package kinds, and some have hooks here. It does not know what a field means, which these rows and package project do. The tests of package
// reflection cover it.
package objects

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/disruption"
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
	// Translator translates addresses between the clusters.
	Translator project.Translator
	// PodsSynced reports whether ReferrerChanged was called for all pods; nil: there are none.
	PodsSynced func() bool
	// NodePods returns the pods of the node in a local namespace, LabelsThere those labels of a remote pod that only some providers let it have, and whether it exists.
	// Nil as PodsSynced.
	NodePods    func(namespace string) []*corev1.Pod
	LabelsThere func(remote types.NamespacedName) (map[string]string, bool)
	// RemoteChanged is called when a copy of a kind has changed; nil: it concerns nothing else.
	RemoteChanged func(kind string, before, after client.Object)
	// Served is how to ask this cluster for kinds of custom resources.
	Served Served
}

// Objects copies the objects of all kinds of the catalogue.
type Objects struct {
	engine     *engine.Engine
	options    Options
	references references
	places     places
	gated      gated
	handovers  handovers
	lowered    lowered
	budgets    disruption.Memories
	reflectors []*Reflector // of the catalogue
	custom     *customKinds
}

// New adds a loop to the engine for each kind.
func New(e *engine.Engine, o Options) *Objects {
	all := &Objects{engine: e, options: o}
	for _, copied := range catalogue() {
		if workers := o.Workers(copied.Flag, copied.Workers); workers > 0 && (!copied.NeedsIPs || o.ReflectIPs) {
			all.reflectors = append(all.reflectors, all.newReflector(&copied, workers))
		}
	}
	all.addCustom()
	return all
}

// DefaultWorkers returns the default number of workers by the flag of their kind.
func DefaultWorkers() map[string]int {
	all := map[string]int{}
	for _, copied := range catalogue() {
		all[copied.Flag] = copied.Workers
	}
	return all
}

// Kind returns the reflector of a kind, nil if the kind is not reflected.
func (o *Objects) Kind(name string) *Reflector {
	for _, r := range o.reflectors {
		if r.kind.Name() == name {
			return r
		}
	}
	return nil
}

// About returns the local object that a remote event is about; nil if there is none, or if the event is about an earlier remote object of that name.
func (o *Objects) About(mapping project.NamespaceMapping, subject events.Subject) client.Object {
	r := o.Kind(subject.Kind)
	if subject.Group != "" {
		r = o.custom.kind(schema.GroupKind{Group: subject.Group, Kind: subject.Kind})
	}
	if r == nil {
		return nil
	}
	if remote := r.Remote.Get(r.remoteKey(mapping, subject.Name)); remote != nil && remote.GetUID() == subject.UID && mapping.Reflected(remote) {
		return r.Local.Get(types.NamespacedName{Namespace: mapping.Local, Name: subject.Name})
	}
	return nil
}

// Endpoints returns the addresses of endpoints that the peer is to reach, with their ports. complete is false while the EndpointSlices of some offloaded
// namespace are not known.
func (o *Objects) Endpoints() (all map[netip.Addr][]kinds.Port, complete bool) {
	all = map[netip.Addr][]kinds.Port{}
	slices, services := o.Kind("EndpointSlice"), o.Kind("Service")
	if slices == nil {
		return all, true
	}
	complete = o.engine.Namespaces.Observed()
	o.engine.Namespaces.Each(func(one *engine.Mapping) {
		if one.Terminating() {
			return
		}
		if !slices.Local.Synced(one.Local) || services != nil && !services.Local.Synced(one.Local) {
			complete = false
		}
		for _, object := range slices.Local.All(one.Local) {
			local, ok := object.(*discoveryv1.EndpointSlice)
			if !ok {
				continue
			}
			if services != nil && services.skipped(one.NamespaceMapping, local) {
				continue
			}
			there, _, err := o.there(one.NamespaceMapping, local)
			if err != nil {
				complete = false
				continue
			}
			kinds.Endpoints(one.NamespaceMapping, local, there, all)
		}
	})
	return all, complete
}
