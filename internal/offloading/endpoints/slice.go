// SPDX-License-Identifier: Apache-2.0

package endpoints

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
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/special"
	"liqo.io/liqo/internal/offloading/metadata"
)

const (
	sliceKind = "ShadowEndpointSlice"
	// maxEndpoints is Kubernetes' own limit for one slice, maxAddresses for one endpoint.
	maxEndpoints, maxAddresses = 1000, 100
	// shownAddresses is how many addresses a message names.
	shownAddresses = 3
)

// Origin is what this cluster knows about the cluster that endpoints belong to.
type Origin struct {
	ClusterID string
	// Node is what the peer may give as the node of its endpoints: its name, if no node of this cluster has it; otherwise nothing.
	Node string
	// Reachable means that the network to the cluster works, and that its API server is not known to fail.
	Reachable bool
	// Networks are the prefixes under which this cluster reaches the peer: those agreed with it or, if External, those that the administrator wrote
	// down, because the clusters are joined by other means.
	Networks []netip.Prefix
	External bool
	// Own are networks and addresses of this cluster. They are no peer's, whatever Networks are.
	Own []netip.Prefix
	// Pods are, by name, those of PodsOf that run for the peer in the namespace of the slice.
	Pods map[string]OwnPod
}

// Reachable reports whether endpoints of a peer can be used. The API server of a consumer need not be reachable from here, so only a failing
// connection counts, not a missing one.
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
		case discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.IncomingPeering,
			discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.ProcessForeignClusterStatus:
		}
	}
	return network
}

// EndpointSlice returns the EndpointSlice for a ShadowEndpointSlice of a peer, and in one sentence which addresses it leaves out: those outside
// the networks agreed with the peer. With them, the peer could direct traffic of others to any address that our nodes reach.
func EndpointSlice(shadow *vkv1alpha1.ShadowEndpointSlice, origin Origin) (*discoveryapply.EndpointSliceApplyConfiguration, string) {
	template := &shadow.Spec.Template
	var left []string
	endpoints, unreadable := []*discoveryapply.EndpointApplyConfiguration{}, 0
	for i := range template.Endpoints[:min(len(template.Endpoints), maxEndpoints)] {
		sent := (*discoveryv1.Endpoint)(&template.Endpoints[i])
		if name, ok := ownPod(sent); ok {
			if pod, runs := origin.Pods[name]; runs {
				if own := ownEndpoint(sent, pod, name, shadow.Namespace, template.AddressType); own != nil {
					endpoints = append(endpoints, own)
				}
			}
			continue
		}
		if len(sent.Addresses) == 0 || len(sent.Addresses) > maxAddresses {
			unreadable++ // the API server admitted it unseen: one such endpoint must not make it refuse the EndpointSlice
			continue
		}
		accepted, rejected := splitAddresses(sent.Addresses, template.AddressType, origin)
		left = append(left, rejected...)
		if len(accepted) > 0 {
			endpoints = append(endpoints, endpoint(sent, accepted, origin))
		}
	}
	all := map[string]string{}
	for key, value := range shadow.Labels {
		if metadata.KeepsSliceLabel(key) {
			all[key] = value
		}
	}
	all[discoveryv1.LabelManagedBy], all[labels.ManagedBy], all[labels.Origin] = labels.EndpointSliceReflection, labels.ManagedByShadowEndpointSlice,
		origin.ClusterID
	intent := discoveryapply.EndpointSlice(shadow.Name, shadow.Namespace).WithLabels(all).WithAddressType(template.AddressType).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(vkv1alpha1.GroupVersion.String()).WithKind(sliceKind).
			WithName(shadow.Name).WithUID(shadow.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithEndpoints(endpoints...)
	for i := range template.Ports {
		port := discoveryapply.EndpointPort()
		port.Name, port.Protocol, port.Port, port.AppProtocol = template.Ports[i].Name, template.Ports[i].Protocol, template.Ports[i].Port,
			template.Ports[i].AppProtocol
		intent.WithPorts(port)
	}
	return intent, rejectedMessage(left, unreadable, origin)
}

// Conditions returns the conditions of an endpoint in their shortest form, with those that are not given as Kubernetes reads them: serving is what
// ready is, and terminating is false. An endpoint that cannot be reached is neither ready nor serving, since a proxy sends requests to those that
// serve while they terminate if there are no others.
func Conditions(of discoveryv1.EndpointConditions, reachable bool) discoveryv1.EndpointConditions {
	is := func(condition *bool, otherwise bool) bool {
		if condition == nil {
			return otherwise
		}
		return *condition
	}
	wasReady := is(of.Ready, true)
	ready, serving := reachable && wasReady, reachable && is(of.Serving, wasReady)
	all := discoveryv1.EndpointConditions{Ready: &ready}
	if !ready || !serving { // proxies take one that is not given for true
		all.Serving = &serving
	}
	if is(of.Terminating, false) {
		all.Terminating = of.Terminating
	}
	return all
}

// endpoint copies the documented fields. An endpoint of a peer is on no node of this cluster, and is no object of this cluster: load balancers
// announce Services from the nodes of their endpoints, and meshes and monitoring take identities from their pods. The zone and its hints choose among
// endpoints of the peer only.
func endpoint(from *discoveryv1.Endpoint, addresses []string, origin Origin) *discoveryapply.EndpointApplyConfiguration {
	to := discoveryapply.Endpoint().WithAddresses(addresses...).WithConditions(conditionsOf(Conditions(from.Conditions, origin.Reachable)))
	to.Hostname, to.Zone = from.Hostname, from.Zone
	if from.NodeName != nil && *from.NodeName != "" && *from.NodeName == origin.Node {
		to.NodeName = from.NodeName
	}
	if from.TargetRef != nil && strings.HasPrefix(from.TargetRef.Kind, remoteKind) {
		to.WithTargetRef(targetRef(from.TargetRef))
	}
	if from.Hints != nil {
		hints := discoveryapply.EndpointHints()
		for i := range from.Hints.ForZones {
			hints.WithForZones(discoveryapply.ForZone().WithName(from.Hints.ForZones[i].Name))
		}
		for i := range from.Hints.ForNodes {
			if name := from.Hints.ForNodes[i].Name; name != "" && name == origin.Node {
				hints.WithForNodes(discoveryapply.ForNode().WithName(name))
			}
		}
		to.WithHints(hints)
	}
	return to
}

func conditionsOf(of discoveryv1.EndpointConditions) *discoveryapply.EndpointConditionsApplyConfiguration {
	return &discoveryapply.EndpointConditionsApplyConfiguration{Ready: of.Ready, Serving: of.Serving, Terminating: of.Terminating}
}

// remoteKind begins the kinds of objects in other clusters. Kubernetes has no such kind, and the group is not copied.
const remoteKind = "Remote"

// targetRef sets only non-empty fields: the API server drops empty ones, and the result would look like a change.
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

// splitAddresses divides addresses into those of the peer and all others.
func splitAddresses(addresses []string, family discoveryv1.AddressType, origin Origin) (accepted, rejected []string) {
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		known := err == nil && address.Zone() == "" && (family == discoveryv1.AddressTypeIPv4 && address.Is4() ||
			family == discoveryv1.AddressTypeIPv6 && address.Is6())
		within := func(network netip.Prefix) bool { return network.Contains(address) }
		if known && slices.ContainsFunc(origin.Networks, within) && !slices.ContainsFunc(origin.Own, within) && !special.Is(address) {
			accepted = append(accepted, text)
		} else {
			rejected = append(rejected, text)
		}
	}
	return accepted, rejected
}

func rejectedMessage(left []string, unreadable int, origin Origin) string {
	var malformed string
	if unreadable > 0 {
		malformed = fmt.Sprintf("%d endpoints are left out, because they are not endpoints of an EndpointSlice with 1 to %d addresses", unreadable, maxAddresses)
	}
	if len(left) == 0 {
		return malformed
	}
	shown := make([]string, 0, shownAddresses)
	for _, address := range left[:min(len(left), shownAddresses)] {
		shown = append(shown, fmt.Sprintf("%.64q", address))
	}
	networks := "no network is agreed with it yet"
	if origin.External {
		networks = "spec.network.podCIDRs of its ForeignCluster here lists no network of it"
	}
	if len(origin.Networks) > 0 {
		networks = fmt.Sprintf("it is reached here under %v", origin.Networks)
	}
	foreign := fmt.Sprintf(
		"%d addresses are left out, because they do not belong to cluster %s: %s; %s", len(left), origin.ClusterID, strings.Join(shown, ", "),
		networks,
	)
	if malformed != "" {
		return foreign + "; " + malformed
	}
	return foreign
}
