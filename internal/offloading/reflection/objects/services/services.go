// SPDX-License-Identifier: Apache-2.0

// Package services is what the reflection knows of Services and EndpointSlices beyond their rows: which endpoints in the peer it does not find
// itself, and which types of Services it refuses.
//
//	pods and selectors ──► which endpoints in the peer it does not find itself           places.go, gated.go, handover.go
//	names of Services in other namespaces ──► those of their copies                      externalname.go
//	types of Services that the peer refuses ──► copies of type ClusterIP meanwhile       lowered.go
//
// It must not know how copies are read and written, which package objects does, nor what a field means, which package kinds
// does. The tests of package reflection cover it.
package services

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/objects"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Options of the reflection of Services.
type Options struct {
	// Translator translates addresses between the clusters.
	Translator project.Translator
	// PodsSynced reports whether PodChanged was called for all pods; nil: there are none.
	PodsSynced func() bool
	// NodePods returns the pods of the node in a local namespace; nil as PodsSynced.
	NodePods func(namespace string) []*corev1.Pod
}

// Services is the part of objects for Services and their EndpointSlices.
type Services struct {
	engine  *engine.Engine
	options Options
	objects *objects.Objects

	places    places
	gated     gated
	handovers handovers
	lowered   lowered
}

// New returns the part, for objects.New.
func New(e *engine.Engine, o Options) *Services { return &Services{engine: e, options: o} }

// Attach implements objects.Part.
func (s *Services) Attach(o *objects.Objects) []objects.Hooks {
	s.objects = o
	return []objects.Hooks{
		{
			Kind: kinds.Service, Project: s.project, Hold: s.hold, Stale: isStale, Elsewhere: isExternalName,
			Changed: s.changed, Lower: s.lower, Written: s.exposedNow, Outdated: s.outdated,
		},
		{Kind: kinds.EndpointSlice, Project: s.projectSlice},
	}
}

// PodChanged implements objects.Part.
func (s *Services) PodChanged(before, after client.Object) {
	s.podMoved(before, after)
	s.podGated(before, after)
}

// services and slices return the reflector of the kind, nil if the kind is not reflected.
func (s *Services) services() *objects.Reflector { return s.objects.Kind(kinds.Service.Name()) }

func (s *Services) slices() *objects.Reflector { return s.objects.Kind(kinds.EndpointSlice.Name()) }

// project returns the copy of a Service.
func (s *Services) project(mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	local, ok := object.(*corev1.Service)
	if !ok || mapping.Skips(local) {
		return nil, nil
	}
	named, err := kinds.ExternalName(mapping, local, s.remoteOf)
	if err != nil {
		return nil, err
	}
	served, err := s.served(named)
	if err != nil {
		return nil, err
	}
	return kinds.Service.Copy(mapping, s.lowered.now(served, time.Now())), nil
}

// isStale reports whether a copy is headless as an earlier object was.
func isStale(intent runtime.ApplyConfiguration, there client.Object) bool {
	service, ok := intent.(*coreapply.ServiceApplyConfiguration)
	whole, read := there.(*corev1.Service)
	return ok && read && kinds.Stale(service, whole)
}

// hold returns how long the endpoints of a Service have to be named in the peer before its selector does not find them there any more.
func (s *Services) hold(mapping project.NamespaceMapping, object client.Object) time.Duration {
	local, ok := object.(*corev1.Service)
	if !ok {
		return 0
	}
	served, err := s.served(local)
	if err != nil {
		return 0 // it was known a moment ago
	}
	there := kinds.SelectsThere(mapping, served)
	wait := s.handovers.observe(client.ObjectKeyFromObject(local), there, time.Now())
	if there || s.onlyGated(local) {
		return 0
	}
	return wait // until the endpoints that this selector does not find there are there by name
}

// changed follows a Service that has changed: its slices obey its annotations and selector.
func (s *Services) changed(before, after client.Object) {
	object := engine.Either(before, after)
	if after == nil {
		s.handovers.forget(client.ObjectKeyFromObject(object))
	}
	s.exposureChanged(before, after)
	s.enqueueSlices(object)
}

// enqueueSlices reconciles the slices of a Service.
func (s *Services) enqueueSlices(service client.Object) {
	r := s.slices()
	if r == nil {
		return
	}
	for _, slice := range r.Local.All(service.GetNamespace()) {
		if slice.GetLabels()[discoveryv1.LabelServiceName] == service.GetName() {
			r.Queue.Add(client.ObjectKeyFromObject(slice))
		}
	}
}

// projectSlice also obeys the annotations of the Service of a slice.
func (s *Services) projectSlice(mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	local, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, nil
	}
	if services := s.services(); services != nil {
		if !services.Local.Synced(mapping.Local) {
			return nil, engine.ErrNotSynced
		}
		if s.skipped(mapping, local) {
			return nil, nil
		}
	}
	there, wait, err := s.there(mapping, local)
	if err != nil {
		return nil, err
	}
	shadow, err := kinds.ShadowEndpointSlice(mapping, local, there, s.options.Translator)
	if err != nil || shadow == nil {
		return nil, err
	}
	if wait > 0 {
		s.slices().Queue.AddAfter(client.ObjectKeyFromObject(local), wait)
	}
	return shadow, nil
}

// there returns what is known about the endpoints of a slice that run in the peer, and for how long that holds; 0: until something changes.
func (s *Services) there(mapping project.NamespaceMapping, slice *discoveryv1.EndpointSlice) (kinds.There, time.Duration, error) {
	there := kinds.There{Found: kinds.BySelector(slice), Pod: func(address netip.Addr) string { return s.places.at(slice.Namespace, address) }}
	services := s.services()
	if services == nil {
		return there, 0, nil
	}
	key := serviceOf(slice)
	service, ok := services.Local.Get(key).(*corev1.Service)
	if !ok {
		return there, 0, nil // its event reconciles the slice
	}
	there.Near = service.Spec.TrafficDistribution != nil
	if !there.Found {
		return there, 0, nil
	}
	served, err := s.served(service)
	if err != nil {
		return there, 0, err
	}
	there.Found = kinds.SelectsThere(mapping, served)
	wait := s.handovers.observe(key, there.Found, time.Now())
	if !there.Found || wait == 0 {
		return there, 0, nil
	}
	there.Found = false // the peer's controller may not have found them yet
	return there, wait, nil
}

func serviceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// skipped reports whether the Service of a slice is not reflected to this peer.
func (s *Services) skipped(mapping project.NamespaceMapping, slice *discoveryv1.EndpointSlice) bool {
	service := s.services().Local.Get(serviceOf(slice))
	return service != nil && mapping.Skips(service)
}

// Endpoints returns the addresses of endpoints that the peer is to reach, with their ports. complete is false while the EndpointSlices of some offloaded
// namespace are not known.
func (s *Services) Endpoints() (all map[netip.Addr][]kinds.Port, complete bool) {
	all = map[netip.Addr][]kinds.Port{}
	slices, services := s.slices(), s.services()
	if slices == nil {
		return all, true
	}
	complete = s.engine.Namespaces.Observed()
	s.engine.Namespaces.Each(func(mapping *engine.Mapping) {
		if mapping.Terminating() {
			return
		}
		if !slices.Local.Synced(mapping.Local) || services != nil && !services.Local.Synced(mapping.Local) {
			complete = false
		}
		for _, object := range slices.Local.All(mapping.Local) {
			local, ok := object.(*discoveryv1.EndpointSlice)
			if !ok || services != nil && s.skipped(mapping.NamespaceMapping, local) {
				continue
			}
			there, _, err := s.there(mapping.NamespaceMapping, local)
			if err != nil {
				complete = false
				continue
			}
			kinds.Endpoints(mapping.NamespaceMapping, local, there, all)
		}
	})
	return all, complete
}
