// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"

	"liqo.io/liqo/apis/labels"
)

const (
	// sliceName is the name of our EndpointSlice.
	sliceName = "liqo-dns-standby"
	// managedBy keeps Kubernetes from treating the slice as one of its own.
	managedBy = "standby.liqo.io"
	// most is the number of endpoints of the slice.
	most = 100
)

// addressOf returns the address of the Service; not valid if it has none.
func addressOf(service *corev1.Service) netip.Addr {
	if service == nil {
		return netip.Addr{}
	}
	address, _ := netip.ParseAddr(service.Spec.ClusterIP) // none for a headless Service, or one that is not complete yet
	return address
}

// plan returns the slice that the Service gets beside its own ones: the endpoints of the DNS of this cluster. nil if there are none.
func plan(service *corev1.Service, dns []discoveryv1.EndpointSlice) *discoveryapply.EndpointSliceApplyConfiguration {
	family := discoveryv1.AddressTypeIPv4
	if addressOf(service).Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	var ports map[string]int32
	var ready, others []string
	for i := range dns {
		slice := &dns[i]
		its := portsOf(service, slice.Ports)
		if slice.AddressType != family || len(its) == 0 || ports != nil && !equal(ports, its) {
			continue
		}
		ports = its
		for _, endpoint := range slice.Endpoints {
			switch c := endpoint.Conditions; {
			case len(endpoint.Addresses) == 0, c.Terminating != nil && *c.Terminating:
			case c.Ready == nil || *c.Ready:
				ready = append(ready, endpoint.Addresses[0])
			default:
				others = append(others, endpoint.Addresses[0])
			}
		}
	}
	if len(ready) == 0 {
		ready = others // all of them start
	}
	if len(ready) == 0 {
		return nil
	}
	slices.Sort(ready)
	ready = slices.Compact(ready)
	intent := discoveryapply.EndpointSlice(sliceName, service.Namespace).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: managedBy, labels.AppPartOf: labels.PartOf}).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion("v1").WithKind("Service").WithName(service.Name).WithUID(service.UID)).
		WithAddressType(family)
	for _, address := range ready[:min(len(ready), most)] {
		intent.WithEndpoints(discoveryapply.Endpoint().WithAddresses(address).
			WithConditions(discoveryapply.EndpointConditions().WithReady(false).WithServing(true).WithTerminating(true)))
	}
	for _, port := range service.Spec.Ports {
		intent.WithPorts(discoveryapply.EndpointPort().WithName(port.Name).WithProtocol(port.Protocol).WithPort(ports[port.Name]))
	}
	return intent
}

// portsOf returns, by the names of the Service's ports, where the DNS of this cluster listens: at its one port for UDP, and the same for TCP. Empty if it
// has no port for one of them.
func portsOf(service *corev1.Service, dns []discoveryv1.EndpointPort) map[string]int32 {
	at := int32(0)
	for _, port := range dns {
		if port.Port != nil && port.Protocol != nil && *port.Protocol == corev1.ProtocolUDP {
			at = *port.Port
			break
		}
	}
	found := map[string]int32{}
	for _, wanted := range service.Spec.Ports {
		for _, port := range dns {
			if port.Port != nil && port.Protocol != nil && *port.Protocol == wanted.Protocol && *port.Port == at {
				found[wanted.Name] = at
			}
		}
	}
	if len(found) != len(service.Spec.Ports) {
		return nil
	}
	return found
}

func equal(a, b map[string]int32) bool {
	for name, port := range a {
		if b[name] != port {
			return false
		}
	}
	return len(a) == len(b)
}
