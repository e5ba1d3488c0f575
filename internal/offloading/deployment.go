// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

// Names that the chart and this package agree on.
const (
	kubeletName = "virtual-kubelet"
	nodeRole    = "liqo-virtual-kubelet"
	tenantRole  = "liqo-virtual-kubelet-tenant"
	leaseRole   = "liqo-virtual-kubelet-lease"
	leaseSpace  = "kube-node-lease"
	// callersRole is Kubernetes' own, in callersSpace: to read whose certificates the API server trusts.
	callersRole  = "extension-apiserver-authentication-reader"
	callersSpace = "kube-system"
	healthPort   = 8081
	// kubeletPort is where virtual kubelets answer the API server.
	kubeletPort   = 10250
	managedByName = "advertisementoperator" // the documented value
)

// kubelet is everything that decides how the virtual kubelet of one slice looks.
type kubelet struct {
	options   KubeletOptions
	local     discoveryv1alpha1.ClusterIdentity
	peer      discoveryv1alpha1.ClusterIdentity
	namespace string
	slice     string
	node      string
	// checkNetwork makes the node's readiness depend on the network fabric.
	checkNetwork         bool
	nodeLabels, nodeNote map[string]string
}

// marks are the labels of all that belongs to the virtual kubelet of a peer.
func (k kubelet) marks() map[string]string {
	return map[string]string{
		labels.AppName: kubeletName, labels.AppComponent: kubeletName, labels.AppPartOf: labels.PartOf,
		labels.AppManagedBy: managedByName, labels.ClusterID: k.peer.ClusterID,
	}
}

// bindingPrefix begins the names of the bindings outside the tenant namespace.
const bindingPrefix = "liqo-virtual-kubelet-"

func (k kubelet) bindingName() string { return bindingPrefix + k.peer.UniqueName() }

func (k kubelet) account() *coreapply.ServiceAccountApplyConfiguration {
	return coreapply.ServiceAccount(kubeletName, k.namespace).WithLabels(k.marks())
}

func (k kubelet) subject() *rbacapply.SubjectApplyConfiguration {
	return rbacapply.Subject().WithKind("ServiceAccount").WithName(kubeletName).WithNamespace(k.namespace)
}

func clusterRole(name string) *rbacapply.RoleRefApplyConfiguration {
	return rbacapply.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(name)
}

func (k kubelet) nodeBinding() *rbacapply.ClusterRoleBindingApplyConfiguration {
	return rbacapply.ClusterRoleBinding(k.bindingName()).WithLabels(k.marks()).WithRoleRef(clusterRole(nodeRole)).WithSubjects(k.subject())
}

func (k kubelet) tenantBinding() *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(tenantRole, k.namespace).WithLabels(k.marks()).WithRoleRef(clusterRole(tenantRole)).WithSubjects(k.subject())
}

func (k kubelet) leaseBinding() *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(k.bindingName(), leaseSpace).WithLabels(k.marks()).WithRoleRef(clusterRole(leaseRole)).WithSubjects(k.subject())
}

// callersBinding lets the virtual kubelet know the API server, and nobody else, when it is called.
func (k kubelet) callersBinding() *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(k.bindingName(), callersSpace).WithLabels(k.marks()).WithSubjects(k.subject()).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(callersRole))
}

// args of the process. Nothing in them is secret: the identity is read from its Secret.
func (k kubelet) args() []string {
	args := []string{
		kubeletName,
		"--nodename=" + k.node,
		"--tenant-namespace=" + k.namespace,
		"--slice-name=" + k.slice,
		"--foreign-cluster-id=" + k.peer.ClusterID,
		"--foreign-cluster-name=" + k.peer.ClusterName,
		"--home-cluster-id=" + k.local.ClusterID,
		"--home-cluster-name=" + k.local.ClusterName,
		"--node-ip=$(POD_IP)",
		fmt.Sprintf("--node-check-network=%t", k.checkNetwork),
		fmt.Sprintf("--listen-port=%d", kubeletPort),
		fmt.Sprintf("--health-probe-address=:%d", healthPort),
	}
	if !k.checkNetwork {
		args = append(args, "--disable-internal-network=true")
	}
	// What comes later wins: the administrator's arguments stand at the end.
	args = append(args, "--enable-apiserver-support=true")
	if len(k.nodeLabels) > 0 {
		args = append(args, "--node-extra-labels="+pairs(k.nodeLabels))
	}
	if len(k.nodeNote) > 0 {
		args = append(args, "--node-extra-annotations="+pairs(k.nodeNote))
	}
	if k.options.MetricsEnabled {
		args = append(args, "--metrics-enabled=true", "--metrics-address="+k.options.MetricsAddress)
	}
	return append(args, k.options.ExtraArgs...)
}

// pairs writes a map as the flags of the virtual kubelet read it, which is as a line of CSV, in an order that does not change.
func pairs(all map[string]string) string {
	texts := make([]string, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, key+"="+all[key])
	}
	var line strings.Builder
	to := csv.NewWriter(&line)
	_ = to.Write(texts) // a strings.Builder takes everything
	to.Flush()
	return strings.TrimSuffix(line.String(), "\n")
}

func (k kubelet) deployment() *appsapply.DeploymentApplyConfiguration {
	marks := k.marks()
	podLabels := maps.Clone(k.options.ExtraLabels)
	if podLabels == nil {
		podLabels = map[string]string{}
	}
	maps.Copy(podLabels, marks)
	template := coreapply.PodTemplateSpec().WithLabels(podLabels).WithSpec(k.pod())
	if len(k.options.ExtraAnnotations) > 0 {
		template.WithAnnotations(k.options.ExtraAnnotations)
	}
	return appsapply.Deployment(kubeletName, k.namespace).WithLabels(marks).WithSpec(appsapply.DeploymentSpec().
		WithReplicas(1).
		WithRevisionHistoryLimit(1).
		// Two kubelets of one node would overwrite each other's status.
		WithStrategy(appsapply.DeploymentStrategy().WithType("Recreate")).
		WithSelector(metaapply.LabelSelector().WithMatchLabels(map[string]string{labels.AppName: kubeletName, labels.ClusterID: k.peer.ClusterID})).
		WithTemplate(template))
}

func (k kubelet) pod() *coreapply.PodSpecApplyConfiguration {
	field := func(name, path string) *coreapply.EnvVarApplyConfiguration {
		return coreapply.EnvVar().WithName(name).WithValueFrom(coreapply.EnvVarSource().WithFieldRef(coreapply.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath(path)))
	}
	probe := func(path string) *coreapply.ProbeApplyConfiguration {
		return coreapply.Probe().WithHTTPGet(coreapply.HTTPGetAction().WithPath(path).WithPort(intstr.FromInt32(healthPort))).WithPeriodSeconds(10).WithFailureThreshold(3)
	}
	tolerate := func(taint string) *coreapply.TolerationApplyConfiguration {
		return coreapply.Toleration().WithKey(taint).WithOperator(corev1.TolerationOpExists).WithEffect(corev1.TaintEffectNoExecute).WithTolerationSeconds(10)
	}
	container := coreapply.Container().WithName(kubeletName).
		WithImage(k.options.Image).WithImagePullPolicy(k.options.pullPolicy()).
		WithArgs(k.args()...).
		WithEnv(field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP")).
		WithPorts(coreapply.ContainerPort().WithName("kubelet").WithContainerPort(kubeletPort), coreapply.ContainerPort().WithName("health").WithContainerPort(healthPort)).
		WithLivenessProbe(probe("/healthz")).WithReadinessProbe(probe("/readyz")).
		WithResources(k.resources()).
		WithSecurityContext(coreapply.SecurityContext().WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreapply.Capabilities().WithDrop("ALL")))
	if port, err := k.options.metricsPort(); k.options.MetricsEnabled && err == nil {
		container.WithPorts(coreapply.ContainerPort().WithName("metrics").WithContainerPort(port))
	}
	return coreapply.PodSpec().
		WithServiceAccountName(kubeletName).
		WithEnableServiceLinks(false).
		// It holds nothing that has to be written down: it may end at once.
		WithTerminationGracePeriodSeconds(5).
		WithSecurityContext(coreapply.PodSecurityContext().WithRunAsNonRoot(true).WithRunAsUser(65532).WithRunAsGroup(65532).
			WithSeccompProfile(coreapply.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		// If its node dies, another one takes over long before pods are taken off the virtual node.
		WithTolerations(tolerate(corev1.TaintNodeNotReady), tolerate(corev1.TaintNodeUnreachable)).
		WithAffinity(coreapply.Affinity().WithNodeAffinity(coreapply.NodeAffinity().WithRequiredDuringSchedulingIgnoredDuringExecution(
			coreapply.NodeSelector().WithNodeSelectorTerms(coreapply.NodeSelectorTerm().WithMatchExpressions(
				coreapply.NodeSelectorRequirement().WithKey(labels.Type).WithOperator(corev1.NodeSelectorOpNotIn).WithValues(labels.TypeVirtualNode)))))).
		WithContainers(container)
}

func (k kubelet) resources() *coreapply.ResourceRequirementsApplyConfiguration {
	list := func(cpu, ram string) corev1.ResourceList {
		all := corev1.ResourceList{}
		if cpu != "" {
			all[corev1.ResourceCPU] = resource.MustParse(cpu) // checked with the flags
		}
		if ram != "" {
			all[corev1.ResourceMemory] = resource.MustParse(ram)
		}
		return all
	}
	required := coreapply.ResourceRequirements()
	if requests := list(k.options.CPURequests, k.options.RAMRequests); len(requests) > 0 {
		required.WithRequests(requests)
	}
	if limits := list(k.options.CPULimits, k.options.RAMLimits); len(limits) > 0 {
		required.WithLimits(limits)
	}
	return required
}
