// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

const (
	sliceKind = "ShadowEndpointSlice"
	// maxEndpoints is Kubernetes' own limit for one slice.
	maxEndpoints = 1000
	// shownAddresses are as many as a message names.
	shownAddresses = 3
)

// Origin is the cluster that endpoints belong to, as it is seen from here.
type Origin struct {
	ClusterID string
	// Reachable: the network to it works, and so does its API server as far as we know.
	Reachable bool
	// Networks are those that were agreed with it, as they are seen here. Anywhere is true where networks are joined by other
	// means: nothing was agreed, and nothing can be compared.
	Networks []netip.Prefix
	Anywhere bool
}

// Reachable tells whether endpoints of a peer can be used. A consumer's API server need not be reachable from
// here, so no connection to it says nothing; one that fails does.
func Reachable(fc *discoveryv1alpha1.ForeignCluster) bool {
	if fc == nil {
		return false
	}
	network := false
	for i := range fc.Status.PeeringConditions {
		condition := &fc.Status.PeeringConditions[i]
		switch condition.Type {
		case discoveryv1alpha1.NetworkStatus:
			network = condition.Status == discoveryv1alpha1.StatusEstablished || condition.Status == discoveryv1alpha1.StatusExternal
		case discoveryv1alpha1.APIServerStatus:
			if condition.Status == discoveryv1alpha1.StatusError {
				return false
			}
		case discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.IncomingPeering, discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.ProcessForeignClusterStatus:
		}
	}
	return network
}

// Networks are those that packets to the peer may go to: its pods, and what it makes reachable besides.
func Networks(tunnel *netv1alpha1.TunnelEndpoint) (all []netip.Prefix) {
	if tunnel == nil {
		return nil
	}
	spec := &tunnel.Spec
	for _, pair := range [][2]string{{string(spec.RemotePodCIDR), spec.RemoteNATPodCIDR}, {string(spec.RemoteExternalCIDR), spec.RemoteNATExternalCIDR}} {
		text := pair[0]
		if pair[1] != "" && pair[1] != notRemapped {
			text = pair[1]
		}
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}

// notRemapped stands in a TunnelEndpoint for a network that is seen as it is.
const notRemapped = "None"

// EndpointSlice is the EndpointSlice of a peer's wish, and what of the wish is not believed, in a sentence. Addresses outside of the
// networks agreed with the peer are left out: it could make others' traffic go wherever our nodes can reach.
func EndpointSlice(shadow *vkv1alpha1.ShadowEndpointSlice, origin Origin) (*discoveryapply.EndpointSliceApplyConfiguration, string) {
	template := &shadow.Spec.Template
	var left []string
	endpoints := []*discoveryapply.EndpointApplyConfiguration{}
	for i := range template.Endpoints[:min(len(template.Endpoints), maxEndpoints)] {
		one := &template.Endpoints[i]
		believed, others := believe(one.Addresses, template.AddressType, origin)
		left = append(left, others...)
		if len(believed) > 0 {
			endpoints = append(endpoints, endpoint(one, believed, origin.Reachable))
		}
	}
	all := map[string]string{}
	for key, value := range shadow.Labels {
		all[key] = value
	}
	all[discoveryv1.LabelManagedBy], all[labels.ManagedBy], all[labels.Origin] = labels.EndpointSliceReflection, labels.ManagedByShadowEndpointSlice, origin.ClusterID
	intent := discoveryapply.EndpointSlice(shadow.Name, shadow.Namespace).WithLabels(all).WithAddressType(template.AddressType).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(vkv1alpha1.GroupVersion.String()).WithKind(sliceKind).
			WithName(shadow.Name).WithUID(shadow.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithEndpoints(endpoints...)
	for i := range template.Ports {
		port := discoveryapply.EndpointPort()
		port.Name, port.Protocol, port.Port, port.AppProtocol = template.Ports[i].Name, template.Ports[i].Protocol, template.Ports[i].Port, template.Ports[i].AppProtocol
		intent.WithPorts(port)
	}
	return intent, disbelief(left, origin)
}

// endpoint keeps what is documented. Ready is the only condition, so that nothing else can attract traffic to one that is not ready.
func endpoint(from *discoveryv1.Endpoint, addresses []string, reachable bool) *discoveryapply.EndpointApplyConfiguration {
	ready := reachable && (from.Conditions.Ready == nil || *from.Conditions.Ready)
	to := discoveryapply.Endpoint().WithAddresses(addresses...).WithConditions(discoveryapply.EndpointConditions().WithReady(ready))
	to.Hostname, to.NodeName, to.Zone = from.Hostname, from.NodeName, from.Zone
	if from.TargetRef != nil {
		to.WithTargetRef(targetRef(from.TargetRef))
	}
	if from.Hints != nil {
		hints := discoveryapply.EndpointHints()
		for i := range from.Hints.ForZones {
			hints.WithForZones(discoveryapply.ForZone().WithName(from.Hints.ForZones[i].Name))
		}
		to.WithHints(hints)
	}
	return to
}

// targetRef says what there is, and nothing empty: what the API server would drop again looks like a change.
func targetRef(from *corev1.ObjectReference) *coreapply.ObjectReferenceApplyConfiguration {
	to := coreapply.ObjectReference()
	if from.Kind != "" {
		to.WithKind(from.Kind)
	}
	if from.Namespace != "" {
		to.WithNamespace(from.Namespace)
	}
	if from.Name != "" {
		to.WithName(from.Name)
	}
	if from.UID != "" {
		to.WithUID(from.UID)
	}
	return to
}

// believe parts addresses into those of the peer and others.
func believe(addresses []string, family discoveryv1.AddressType, origin Origin) (believed, others []string) {
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		known := err == nil && address.Zone() == "" && (family == discoveryv1.AddressTypeIPv4 && address.Is4() || family == discoveryv1.AddressTypeIPv6 && address.Is6())
		if known && (origin.Anywhere || slices.ContainsFunc(origin.Networks, func(network netip.Prefix) bool { return network.Contains(address) })) {
			believed = append(believed, text)
		} else {
			others = append(others, text)
		}
	}
	return believed, others
}

func disbelief(left []string, origin Origin) string {
	if len(left) == 0 {
		return ""
	}
	shown := make([]string, 0, shownAddresses)
	for _, one := range left[:min(len(left), shownAddresses)] {
		shown = append(shown, fmt.Sprintf("%.64q", one))
	}
	networks := "no network is agreed with it yet"
	if len(origin.Networks) > 0 {
		networks = fmt.Sprintf("its networks are seen here as %v", origin.Networks)
	}
	return fmt.Sprintf("%d addresses are left out, as they are not cluster %s's: %s; %s", len(left), origin.ClusterID, strings.Join(shown, ", "), networks)
}
