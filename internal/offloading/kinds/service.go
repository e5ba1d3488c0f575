// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Service has the same selector and ports in the peer, and addresses of its own.
var Service = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("Service"), "services"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("Service"), "services"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 20,
	Flag: "service", Workers: defaultWorkers, Exposes: true,
	Copy: copied(CopyService), Lost: lostOfService,
	Events: true, Counted: true, Content: true,
	Metadata: &Metadata{Value: "services", Annotations: []string{"service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"}},
	Most:     "500", Total: "1000",
})

// addresses are annotations with which a Service requests an address from a load balancer of this cluster, or joins Services of clusters other than the
// peer. The peer refuses them.
var addresses = project.Keys{
	"metallb.universe.tf/loadBalancerIPs", "metallb.io/loadBalancerIPs", "lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips",
	"kube-vip.io/loadbalancerIPs", "projectcalico.org/loadBalancerIPs", "io.cilium/global-service", "service.cilium.io/global",
}

// CopyService returns the remote Service: the same selector and ports; the peer allocates the addresses. Nil: it is skipped, or is that of our API server.
func CopyService(m project.NamespaceMapping, local *corev1.Service) *coreapply.ServiceApplyConfiguration {
	if m.Skips(local) || local.Namespace == corev1.NamespaceDefault && local.Name == "kubernetes" {
		return nil
	}
	spec := coreapply.ServiceSpec().WithSelector(local.Spec.Selector).WithLoadBalancerSourceRanges(local.Spec.LoadBalancerSourceRanges...)
	spec.Type = project.Some(local.Spec.Type)
	spec.ExternalName = project.Some(local.Spec.ExternalName)
	if local.Spec.ClusterIP == corev1.ClusterIPNone {
		spec.WithClusterIP(corev1.ClusterIPNone)
	}
	spec.SessionAffinity, spec.SessionAffinityConfig = project.Some(local.Spec.SessionAffinity), affinityConfig(local.Spec.SessionAffinityConfig)
	spec.InternalTrafficPolicy = local.Spec.InternalTrafficPolicy
	if isExposed(local) { // a Service of this cluster has a policy also because of its externalIPs, and the peer would refuse that without them
		spec.ExternalTrafficPolicy = project.Some(local.Spec.ExternalTrafficPolicy)
	}
	spec.IPFamilyPolicy = familyPolicy(local.Spec.IPFamilyPolicy)
	spec.PublishNotReadyAddresses = project.Some(local.Spec.PublishNotReadyAddresses)
	spec.AllocateLoadBalancerNodePorts, spec.LoadBalancerClass = local.Spec.AllocateLoadBalancerNodePorts, local.Spec.LoadBalancerClass
	spec.TrafficDistribution = local.Spec.TrafficDistribution
	nodePorts := local.Annotations[labels.ForceRemoteNodePort] == "true" && !m.Skip.NodePorts
	for _, port := range local.Spec.Ports {
		spec.WithPorts(servicePort(port, nodePorts))
	}
	return coreapply.Service(local.Name, m.Remote).
		WithLabels(m.LabelsOf(local)).WithAnnotations(m.AnnotationsOf(local, addresses...)).WithSpec(spec)
}

// ByName returns a Service as the peer is to have it if this cluster names all its endpoints there, because the peer would not find the same by the selector. A
// selector that no pod matches makes the peer's Kubernetes take its own endpoints away; without one, it would leave what it had found before as it is.
func ByName(local *corev1.Service) *corev1.Service {
	named := local.DeepCopy()
	if named.Spec.Selector == nil {
		named.Spec.Selector = map[string]string{}
	}
	named.Spec.Selector[labels.ByName] = "true"
	return named
}

// Stale reports whether a copy is headless as an earlier object of that name was: a write without an address takes that for
// the one to keep. Only another copy has an address.
func Stale(intent *coreapply.ServiceApplyConfiguration, there *corev1.Service) bool {
	return there.Spec.ClusterIP == corev1.ClusterIPNone && intent.Spec != nil && intent.Spec.ClusterIP == nil &&
		intent.Spec.Type != nil && *intent.Spec.Type != corev1.ServiceTypeExternalName
}

// Exposure is what a peer may refuse of a Service that clients outside of the cluster reach; empty for other Services. Two
// Services with the same exposure ask for the same.
func Exposure(local *corev1.Service) string {
	if !isExposed(local) {
		return ""
	}
	text := string(local.Spec.Type) + " " + local.Annotations[labels.ForceRemoteNodePort]
	if class := local.Spec.LoadBalancerClass; class != nil {
		text += " " + *class
	}
	for _, port := range local.Spec.Ports {
		text += fmt.Sprintf(" %d/%s", port.Port, port.Protocol)
	}
	return text
}

// isExposed reports whether clients outside of the cluster reach a Service by its type.
func isExposed(local *corev1.Service) bool {
	return local.Spec.Type == corev1.ServiceTypeNodePort || local.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// Inside returns the Service as pods of the cluster use it: its name, an address, and its ports.
func Inside(local *corev1.Service) *corev1.Service {
	inside := local.DeepCopy()
	inside.Spec.Type = corev1.ServiceTypeClusterIP
	inside.Spec.ExternalTrafficPolicy, inside.Spec.AllocateLoadBalancerNodePorts, inside.Spec.LoadBalancerClass = "", nil, nil
	inside.Spec.LoadBalancerSourceRanges = nil
	delete(inside.Annotations, labels.ForceRemoteNodePort)
	return inside
}

// affinityConfig returns for how long a client stays with a pod, if that is not the default, which the peer sets itself.
func affinityConfig(local *corev1.SessionAffinityConfig) *coreapply.SessionAffinityConfigApplyConfiguration {
	if local == nil || local.ClientIP == nil || local.ClientIP.TimeoutSeconds == nil ||
		*local.ClientIP.TimeoutSeconds == corev1.DefaultClientIPServiceAffinitySeconds {
		return nil
	}
	return coreapply.SessionAffinityConfig().WithClientIP(coreapply.ClientIPConfig().WithTimeoutSeconds(*local.ClientIP.TimeoutSeconds))
}

// familyPolicy returns the policy as one that every cluster can obey: a cluster of one family refuses a Service that requires two, and pods there would not
// find it at all. In a cluster of two families, Prefer means the same as Require.
func familyPolicy(local *corev1.IPFamilyPolicy) *corev1.IPFamilyPolicy {
	if local != nil && *local == corev1.IPFamilyPolicyRequireDualStack {
		return new(corev1.IPFamilyPolicyPreferDualStack)
	}
	return local
}

func servicePort(local corev1.ServicePort, nodePort bool) *coreapply.ServicePortApplyConfiguration {
	port := coreapply.ServicePort().WithPort(local.Port)
	port.Name, port.Protocol, port.AppProtocol = project.Some(local.Name), project.Some(local.Protocol), local.AppProtocol
	if local.TargetPort != intstr.FromInt32(0) {
		port.WithTargetPort(local.TargetPort)
	}
	if nodePort {
		port.NodePort = project.Some(local.NodePort)
	}
	return port
}

// lostOfService returns the addresses that a user asked for and the copy does not have.
func lostOfService(local runtime.Object) error {
	service, ok := local.(*corev1.Service)
	if !ok {
		return nil
	}
	var missing []string
	if len(service.Spec.ExternalIPs) > 0 {
		missing = append(missing, "externalIPs")
	}
	if service.Spec.LoadBalancerIP != "" {
		missing = append(missing, "loadBalancerIP")
	}
	for _, key := range slices.Sorted(maps.Keys(service.Annotations)) {
		if slices.Contains(addresses, key) {
			missing = append(missing, "annotation "+key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the copy in the remote cluster has no %s: addresses belong to one cluster, and the copy gets one of its own there",
		strings.Join(missing, ", "))
}
