// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
)

// places records which pod of this node has which address here. Slices that users or their controllers write name addresses, and often nothing else.
type places struct {
	mu   sync.RWMutex
	pods map[place]string
}

type place struct {
	namespace string
	address   netip.Addr
}

// replace records that a pod has other addresses than before, and returns those that it had or has.
func (p *places) replace(namespace, name string, before, after []netip.Addr) (changed []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods == nil {
		p.pods = map[place]string{}
	}
	for _, address := range before {
		if at := (place{namespace, address}); !slices.Contains(after, address) && p.pods[at] == name {
			delete(p.pods, at)
			changed = append(changed, address)
		}
	}
	for _, address := range after {
		if at := (place{namespace, address}); p.pods[at] != name {
			p.pods[at] = name
			changed = append(changed, address)
		}
	}
	return changed
}

// at returns the name of the pod of a namespace that has an address; empty if there is none.
func (p *places) at(namespace string, address netip.Addr) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.pods[place{namespace, address}]
}

// addressesOf returns the addresses of a pod that has not ended.
func addressesOf(object client.Object) (all []netip.Addr) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod == nil || podphase.Final(pod.Status.Phase) {
		return nil
	}
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// podMoved reconciles the slices with an address that a pod of this node has got or lost, unless Kubernetes writes them: it does so when the pod changes.
func (s *Services) podMoved(before, after client.Object) {
	object := engine.Either(before, after)
	if _, ok := object.(*corev1.Pod); !ok {
		return
	}
	changed := s.places.replace(object.GetNamespace(), object.GetName(), addressesOf(before), addressesOf(after))
	r := s.slices()
	if r == nil || len(changed) == 0 {
		return
	}
	for _, object := range r.Local.All(object.GetNamespace()) {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if ok && !kinds.BySelector(slice) && slices.ContainsFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool {
			return slices.ContainsFunc(changed, func(address netip.Addr) bool { return slices.Contains(endpoint.Addresses, address.String()) })
		}) {
			r.Queue.Add(types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name})
		}
	}
}
