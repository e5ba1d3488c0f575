// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
)

// PodKind is the kind in the reference of an endpoint that is a pod of the peer in this cluster. Such an endpoint has no address: a peer that names
// addresses of this cluster could name those of others. The reference has the name of the ShadowPod, which is that of its pod, in the namespace of
// the slice.
const PodKind = "ShadowPod"

// OwnPod is what this cluster knows about a pod that runs here for a peer.
type OwnPod struct {
	UID        types.UID
	Node, Zone string
	IPs        []string
	// Ready is its condition. Ends means that it is being deleted here.
	Ready, Ends bool
}

// PodOf returns what is known about a pod that may be an endpoint of a peer, or false: it is none of a ShadowPod, has ended, or has no address yet.
func PodOf(pod *corev1.Pod, zone string) (OwnPod, bool) {
	if pod.Labels[labels.ManagedBy] != labels.ManagedByShadowPod || podphase.Final(pod.Status.Phase) || len(pod.Status.PodIPs) == 0 {
		return OwnPod{}, false
	}
	of := OwnPod{UID: pod.UID, Node: pod.Spec.NodeName, Zone: zone, Ends: pod.DeletionTimestamp != nil}
	for _, ip := range pod.Status.PodIPs {
		of.IPs = append(of.IPs, ip.IP)
	}
	of.Ready = slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
	return of, true
}

// PodsOf returns the names of the pods of this cluster that are endpoints of a ShadowEndpointSlice, each once.
func PodsOf(slice *vkv1alpha1.ShadowEndpointSlice) (names []string) {
	all := slice.Spec.Template.Endpoints
	for i := range all[:min(len(all), maxEndpoints)] {
		if name, ok := ownPod((*discoveryv1.Endpoint)(&all[i])); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func ownPod(of *discoveryv1.Endpoint) (name string, is bool) {
	if of.TargetRef == nil || of.TargetRef.Kind != PodKind || of.TargetRef.Name == "" {
		return "", false
	}
	return of.TargetRef.Name, true
}

// ownEndpoint returns the endpoint of a pod that runs here; nil if it has no address of that family. The peer decides whether the pod is an endpoint
// and may be used, by conditions of its own cluster; this cluster knows where the pod is. It knows earlier than the peer when a pod is not ready any
// more, or is a new one.
func ownEndpoint(from *discoveryv1.Endpoint, pod OwnPod, name, namespace string, family discoveryv1.AddressType) *discoveryapply.EndpointApplyConfiguration {
	i := slices.IndexFunc(pod.IPs, func(text string) bool {
		address, err := netip.ParseAddr(text)
		return err == nil && (family == discoveryv1.AddressTypeIPv4 && address.Is4() || family == discoveryv1.AddressTypeIPv6 && address.Is6())
	})
	if i < 0 {
		return nil
	}
	to := discoveryapply.Endpoint().WithAddresses(pod.IPs[i]).WithConditions(conditionsOf(ownConditions(from.Conditions, pod)))
	to.WithTargetRef(coreapply.ObjectReference().WithKind("Pod").WithNamespace(namespace).WithName(name).WithUID(pod.UID))
	to.Hostname = from.Hostname
	if pod.Node != "" {
		to.WithNodeName(pod.Node)
	}
	if pod.Zone != "" {
		to.WithZone(pod.Zone)
	}
	if from.Hints == nil {
		return to
	}
	hints := discoveryapply.EndpointHints()
	if len(from.Hints.ForZones) > 0 && pod.Zone != "" {
		hints.WithForZones(discoveryapply.ForZone().WithName(pod.Zone))
	}
	if len(from.Hints.ForNodes) > 0 && pod.Node != "" {
		hints.WithForNodes(discoveryapply.ForNode().WithName(pod.Node))
	}
	if len(hints.ForZones)+len(hints.ForNodes) > 0 {
		to.WithHints(hints)
	}
	return to
}

// ownConditions joins the conditions that the peer gives an endpoint with what its pod is here. The peer publishes a pod whatever its state if it is
// ready without serving, or while it terminates.
func ownConditions(given discoveryv1.EndpointConditions, pod OwnPod) discoveryv1.EndpointConditions {
	given = Conditions(given, true)
	serving, terminating := given.Serving == nil || *given.Serving, given.Terminating != nil
	published := *given.Ready && (!serving || terminating)
	ready := published || *given.Ready && pod.Ready && !pod.Ends
	serving = serving && pod.Ready
	terminating = terminating || pod.Ends
	return Conditions(discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}, true)
}
