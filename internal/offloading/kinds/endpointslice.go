// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/endpoints"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// EndpointSlice has the endpoints of a Service that the peer does not find itself.
var EndpointSlice = row(Kind{
	Local:    Resource{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices"},
	Remote:   Resource{vkv1alpha1.GroupVersion.WithKind("ShadowEndpointSlice"), "shadowendpointslices"},
	Register: []func(*runtime.Scheme) error{discoveryv1.AddToScheme, vkv1alpha1.AddToScheme}, Order: 30,
	Flag: "endpointslice", Workers: 10, NeedsIPs: true,
	Events: true, Counted: true,
})

// bySelector is the controller of Kubernetes that writes slices of the pods that a Service selects.
const bySelector = "endpointslice-controller.k8s.io"

// BySelector reports whether Kubernetes writes a slice, from the selector of its Service.
func BySelector(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == bySelector
}

// SelectsThere reports whether the peer's Kubernetes finds the pods of a Service that run there: by a selector all of whose keys these pods have in every
// provider. Providers drop labels in domains that they do not know, such as those with which operators mark the primary of a database.
func SelectsThere(m project.NamespaceMapping, service *corev1.Service) bool {
	for key := range service.Spec.Selector {
		if !metadata.Kept(key) || m.Skip.Labels.Match(key) {
			return false
		}
	}
	return len(service.Spec.Selector) > 0
}

// There is what is known about endpoints that run in the peer.
type There struct {
	// Found: the peer finds them itself.
	Found bool
	// Pod returns the name of the pod of the namespace that runs there and has this address here; empty if there is none. Nil: no pod is known.
	Pod func(netip.Addr) string
	// Near: the Service prefers endpoints that are near (trafficDistribution).
	Near bool
}

// hints returns those of an endpoint for the peer's proxies. A proxy heeds hints only if each endpoint has one: without those of this cluster, whose nodes may
// have no zones, its pods would not prefer the endpoints of their own zone or node either. This cluster is a zone and a node of its own there.
func (t There) hints(m project.NamespaceMapping, local *discoveryv1.EndpointHints) (discoveryv1.EndpointHints, bool) {
	var hints discoveryv1.EndpointHints
	if local != nil {
		hints.ForZones = local.ForZones
		if len(local.ForNodes) > 0 {
			hints.ForNodes = []discoveryv1.ForNode{{Name: m.LocalName}}
		}
	}
	if t.Near && len(hints.ForZones) == 0 {
		hints.ForZones = []discoveryv1.ForZone{{Name: m.LocalName}}
	}
	return hints, len(hints.ForZones)+len(hints.ForNodes) > 0
}

// pod returns the name of the pod behind an endpoint, and whether the endpoint runs in the peer at all.
func (t There) pod(m project.NamespaceMapping, endpoint *discoveryv1.Endpoint) (name string, there bool) {
	there = endpoint.NodeName != nil && *endpoint.NodeName == m.NodeName
	if ref := endpoint.TargetRef; there && ref != nil && ref.Kind == "Pod" && (ref.Namespace == "" || ref.Namespace == m.Local) && ref.Name != "" {
		return ref.Name, true
	}
	if t.Pod != nil && len(endpoint.Addresses) > 0 && (there || endpoint.NodeName == nil) {
		if address, err := netip.ParseAddr(endpoint.Addresses[0]); err == nil {
			name = t.Pod(address)
		}
	}
	return name, there || name != ""
}

// ShadowEndpointSlice returns the endpoints of a local EndpointSlice that the peer does not find itself; nil if there are none. Those that run in the peer are
// pods of their name there, without an address. The error means that an address cannot be translated yet: the caller must leave the remote object as it is.
func ShadowEndpointSlice(m project.NamespaceMapping, local *discoveryv1.EndpointSlice, there There,
	translator project.Translator,
) (*vkapply.ShadowEndpointSliceApplyConfiguration, error) {
	if m.Skips(local) || local.Labels[discoveryv1.LabelServiceName] == "" ||
		local.Labels[discoveryv1.LabelManagedBy] == labels.EndpointSliceReflection {
		return nil, nil
	}
	template := vkapply.EndpointSliceTemplate().WithAddressType(local.AddressType)
	for _, endpoint := range local.Endpoints {
		if pod, is := there.pod(m, &endpoint); is {
			if pod != "" && !there.Found {
				template.WithEndpoints(ownEndpoint(m, endpoint, pod, there))
			}
			continue
		}
		addresses, err := remoteAddresses(endpoint.Addresses, local.AddressType, translator)
		if err != nil {
			return nil, err
		}
		if len(addresses) > 0 {
			template.WithEndpoints(remoteEndpoint(m, endpoint, addresses, there))
		}
	}
	if len(template.Endpoints) == 0 {
		return nil, nil
	}
	for _, port := range local.Ports {
		template.WithPorts(*port.DeepCopy())
	}
	all := m.LabelsOf(local)
	all[discoveryv1.LabelManagedBy] = labels.EndpointSliceReflection
	all[discoveryv1.LabelServiceName] = local.Labels[discoveryv1.LabelServiceName]
	return vkapply.ShadowEndpointSlice(local.Name, m.Remote).
		WithLabels(all).WithAnnotations(m.AnnotationsOf(local)).
		WithSpec(vkapply.ShadowEndpointSliceSpec().WithTemplate(template)), nil
}

// Port is a port of an endpoint.
type Port struct {
	Protocol corev1.Protocol
	Number   int32
}

// Endpoints adds the addresses of a local EndpointSlice that the peer is to reach, with their ports, to all: those of the endpoints that [ShadowEndpointSlice]
// translates.
func Endpoints(m project.NamespaceMapping, local *discoveryv1.EndpointSlice, there There, all map[netip.Addr][]Port) {
	if m.Skips(local) || local.Labels[discoveryv1.LabelServiceName] == "" ||
		local.Labels[discoveryv1.LabelManagedBy] == labels.EndpointSliceReflection || local.AddressType == discoveryv1.AddressTypeFQDN {
		return
	}
	var ports []Port
	for i := range local.Ports {
		if number := local.Ports[i].Port; number != nil {
			port := Port{Protocol: corev1.ProtocolTCP, Number: *number}
			if protocol := local.Ports[i].Protocol; protocol != nil {
				port.Protocol = *protocol
			}
			ports = append(ports, port)
		}
	}
	for i := range local.Endpoints {
		endpoint := &local.Endpoints[i]
		if _, is := there.pod(m, endpoint); is {
			continue
		}
		for _, text := range endpoint.Addresses {
			if address, err := netip.ParseAddr(text); err == nil {
				all[address] = append(all[address], ports...)
			}
		}
	}
}

// remoteEndpoint presents this whole cluster as one node of the peer, and gives the target a kind that the peer's controllers ignore.
func remoteEndpoint(m project.NamespaceMapping, local discoveryv1.Endpoint, addresses []string, there There) *vkapply.EndpointApplyConfiguration {
	local = *local.DeepCopy()
	remote := vkapply.Endpoint().WithAddresses(addresses...).WithConditions(endpoints.Conditions(local.Conditions, true))
	remote.Hostname, remote.NodeName, remote.Zone = local.Hostname, project.Some(m.LocalName), local.Zone
	if hints, has := there.hints(m, local.Hints); has {
		remote.WithHints(hints)
	}
	if target := local.TargetRef; target != nil {
		remote.WithTargetRef(corev1.ObjectReference{
			APIVersion: target.APIVersion, Kind: "Remote" + target.Kind, Namespace: target.Namespace, Name: target.Name, UID: target.UID, FieldPath: target.FieldPath,
		})
	}
	return remote
}

// ownEndpoint presents a pod that runs in the peer by its name there.
func ownEndpoint(m project.NamespaceMapping, local discoveryv1.Endpoint, pod string, there There) *vkapply.EndpointApplyConfiguration {
	own := vkapply.Endpoint().WithConditions(endpoints.Conditions(local.Conditions, true)).
		WithTargetRef(corev1.ObjectReference{Kind: endpoints.PodKind, Namespace: m.Remote, Name: pod})
	own.Hostname = local.Hostname
	if hints, has := there.hints(m, local.Hints); has { // the peer puts its own names in their place
		own.WithHints(hints)
	}
	return own
}

// remoteAddresses translates addresses to those that the peer uses. It leaves out those that the peer cannot reach.
func remoteAddresses(local []string, kind discoveryv1.AddressType, translator project.Translator) ([]string, error) {
	if kind == discoveryv1.AddressTypeFQDN {
		return append([]string(nil), local...), nil
	}
	var addresses []string
	for _, text := range local {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue // no packet can reach it: leave it out
		}
		switch seen, err := translator.ToRemote(address); {
		case errors.Is(err, project.ErrNoCounterpart):
		case err != nil:
			return nil, fmt.Errorf("translate endpoint %s for the peer: %w", address, err)
		default:
			addresses = append(addresses, seen.String())
		}
	}
	return addresses, nil
}
