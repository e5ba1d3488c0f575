// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/csv"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	Name       = "virtual-kubelet"
	nodeRole   = "liqo-virtual-kubelet"
	tenantRole = "liqo-virtual-kubelet-tenant"
	leaseRole  = "liqo-virtual-kubelet-lease"
	LeaseSpace = "kube-node-lease"
	// callersRole is a role of Kubernetes in callersSpace: to read which client certificates the API server trusts.
	callersRole  = "extension-apiserver-authentication-reader"
	CallersSpace = "kube-system"
	healthPort   = 8081
	// kubeletPort is the port of the kubelet API.
	kubeletPort   = 10250
	ManagedByName = "advertisementoperator" // the documented value
)

// Kubelet is everything that determines the objects of the virtual kubelet of one slice.
type Kubelet struct {
	Options   Options
	Local     discoveryv1alpha1.ClusterIdentity
	Peer      discoveryv1alpha1.ClusterIdentity
	Namespace string
	Slice     string
	Node      string
	// CheckNetwork makes the node's readiness depend on the network fabric.
	CheckNetwork bool
	// RemoteNetworks are those of the peer that the administrator wrote down; without the network fabric no other address of it is believed.
	RemoteNetworks       []netip.Prefix
	NodeLabels, NodeNote map[string]string
}

// commonLabels returns the labels of all objects of the virtual kubelet of a peer.
func (k Kubelet) commonLabels() map[string]string {
	return map[string]string{
		labels.AppName: Name, labels.AppComponent: Name, labels.AppPartOf: labels.PartOf,
		labels.AppManagedBy: ManagedByName, labels.ClusterID: k.Peer.ClusterID,
	}
}

// BindingPrefix of the names of the bindings outside the tenant namespace.
const BindingPrefix = "liqo-virtual-kubelet-"

func (k Kubelet) bindingName() string { return BindingPrefix + k.Peer.UniqueName() }

func (k Kubelet) account() *coreapply.ServiceAccountApplyConfiguration {
	return coreapply.ServiceAccount(Name, k.Namespace).WithLabels(k.commonLabels()).WithAutomountServiceAccountToken(false)
}

func (k Kubelet) subject() *rbacapply.SubjectApplyConfiguration {
	return rbacapply.Subject().WithKind("ServiceAccount").WithName(Name).WithNamespace(k.Namespace)
}

func ClusterRole(name string) *rbacapply.RoleRefApplyConfiguration {
	return rbacapply.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(name)
}

func (k Kubelet) nodeBinding() *rbacapply.ClusterRoleBindingApplyConfiguration {
	return rbacapply.ClusterRoleBinding(k.bindingName()).WithLabels(k.commonLabels()).WithRoleRef(ClusterRole(nodeRole)).WithSubjects(k.subject())
}

func (k Kubelet) tenantBinding() *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(tenantRole, k.Namespace).WithLabels(k.commonLabels()).WithRoleRef(ClusterRole(tenantRole)).WithSubjects(k.subject())
}

func (k Kubelet) leaseBinding() *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(k.bindingName(), LeaseSpace).WithLabels(k.commonLabels()).WithRoleRef(ClusterRole(leaseRole)).WithSubjects(k.subject())
}

// callersBinding lets the virtual kubelet authenticate the API server when it calls the kubelet API.
func (k Kubelet) callersBinding() *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(k.bindingName(), CallersSpace).WithLabels(k.commonLabels()).WithSubjects(k.subject()).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(callersRole))
}

// args returns the arguments of the process. None is secret: the identity is read from its Secret.
func (k Kubelet) args() []string {
	args := []string{
		Name,
		"--nodename=" + k.Node,
		"--tenant-namespace=" + k.Namespace,
		"--slice-name=" + k.Slice,
		"--foreign-cluster-id=" + k.Peer.ClusterID,
		"--foreign-cluster-name=" + k.Peer.ClusterName,
		"--home-cluster-id=" + k.Local.ClusterID,
		"--home-cluster-name=" + k.Local.ClusterName,
		"--node-ip=$(POD_IP)",
		fmt.Sprintf("--node-check-network=%t", k.CheckNetwork),
		fmt.Sprintf("--listen-port=%d", kubeletPort),
		fmt.Sprintf("--health-probe-address=:%d", healthPort),
	}
	if !k.CheckNetwork {
		args = append(args, "--disable-internal-network=true")
		for _, network := range k.RemoteNetworks {
			args = append(args, "--remote-network="+network.String())
		}
	}
	// Later arguments win, so those of the administrator come last.
	args = append(args, "--enable-apiserver-support=true")
	if len(k.NodeLabels) > 0 {
		args = append(args, "--node-extra-labels="+keyValues(k.NodeLabels))
	}
	if len(k.NodeNote) > 0 {
		args = append(args, "--node-extra-annotations="+keyValues(k.NodeNote))
	}
	if k.Options.MetricsEnabled {
		args = append(args, "--metrics-enabled=true", "--metrics-address="+k.Options.MetricsAddress)
	}
	return append(args, k.Options.ExtraArgs...)
}

// keyValues formats a map for the flags of the virtual kubelet: as one line of CSV, sorted by key.
func keyValues(all map[string]string) string {
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

func (k Kubelet) deployment() *appsapply.DeploymentApplyConfiguration {
	commonLabels := k.commonLabels()
	podLabels := maps.Clone(k.Options.ExtraLabels)
	if podLabels == nil {
		podLabels = map[string]string{}
	}
	maps.Copy(podLabels, commonLabels)
	template := coreapply.PodTemplateSpec().WithLabels(podLabels).WithSpec(k.pod())
	if len(k.Options.ExtraAnnotations) > 0 {
		template.WithAnnotations(k.Options.ExtraAnnotations)
	}
	return appsapply.Deployment(Name, k.Namespace).WithLabels(commonLabels).WithSpec(appsapply.DeploymentSpec().
		WithReplicas(1).
		WithRevisionHistoryLimit(1).
		// Two kubelets of one node would overwrite each other's status.
		WithStrategy(appsapply.DeploymentStrategy().WithType("Recreate")).
		WithSelector(metaapply.LabelSelector().WithMatchLabels(map[string]string{labels.AppName: Name, labels.ClusterID: k.Peer.ClusterID})).
		WithTemplate(template))
}

func (k Kubelet) pod() *coreapply.PodSpecApplyConfiguration {
	field := func(name, path string) *coreapply.EnvVarApplyConfiguration {
		return coreapply.EnvVar().WithName(name).WithValueFrom(coreapply.EnvVarSource().WithFieldRef(coreapply.ObjectFieldSelector().WithAPIVersion("v1").
			WithFieldPath(path)))
	}
	probe := func(path string, seconds int32) *coreapply.ProbeApplyConfiguration {
		// On a busy machine an answer takes longer than the default of one second, and a restart, which reads everything again, makes it busier.
		return coreapply.Probe().WithHTTPGet(coreapply.HTTPGetAction().WithPath(path).WithPort(intstr.FromInt32(healthPort))).
			WithPeriodSeconds(seconds).WithTimeoutSeconds(5).WithFailureThreshold(3)
	}
	tolerate := func(taint string) *coreapply.TolerationApplyConfiguration {
		return coreapply.Toleration().WithKey(taint).WithOperator(corev1.TolerationOpExists).WithEffect(corev1.TaintEffectNoExecute).WithTolerationSeconds(10)
	}
	container := coreapply.Container().WithName(Name).
		WithImage(k.Options.Image).WithImagePullPolicy(k.Options.pullPolicy()).
		WithArgs(k.args()...).
		WithEnv(field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP")).
		WithPorts(coreapply.ContainerPort().WithName("kubelet").WithContainerPort(kubeletPort), coreapply.ContainerPort().WithName("health").
			WithContainerPort(healthPort)).
		WithLivenessProbe(probe("/healthz", 20)).WithReadinessProbe(probe("/readyz", 10)).
		WithResources(k.resources()).
		WithVolumeMounts(coreapply.VolumeMount().WithName(tokenVolumeName).WithMountPath("/var/run/secrets/kubernetes.io/serviceaccount").WithReadOnly(true)).
		WithSecurityContext(coreapply.SecurityContext().WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreapply.Capabilities().WithDrop("ALL")))
	if port, err := k.Options.metricsPort(); k.Options.MetricsEnabled && err == nil {
		container.WithPorts(coreapply.ContainerPort().WithName("metrics").WithContainerPort(port))
	}
	spec := coreapply.PodSpec().
		WithServiceAccountName(Name).WithAutomountServiceAccountToken(false).WithVolumes(tokenVolume()).
		WithEnableServiceLinks(false).
		// It has no state to save, so it may end at once.
		WithTerminationGracePeriodSeconds(5).
		WithSecurityContext(coreapply.PodSecurityContext().WithRunAsNonRoot(true).WithRunAsUser(65532).WithRunAsGroup(65532).
			WithSeccompProfile(coreapply.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		// If its node dies, a replacement starts long before pods are evicted from the virtual node.
		WithTolerations(tolerate(corev1.TaintNodeNotReady), tolerate(corev1.TaintNodeUnreachable)).
		WithAffinity(coreapply.Affinity().WithNodeAffinity(coreapply.NodeAffinity().WithRequiredDuringSchedulingIgnoredDuringExecution(
			coreapply.NodeSelector().WithNodeSelectorTerms(coreapply.NodeSelectorTerm().WithMatchExpressions(
				coreapply.NodeSelectorRequirement().WithKey(labels.Type).WithOperator(corev1.NodeSelectorOpNotIn).WithValues(labels.TypeVirtualNode)))))).
		WithContainers(container)
	if k.Options.PullSecret != "" {
		spec.WithImagePullSecrets(coreapply.LocalObjectReference().WithName(k.Options.PullSecret))
	}
	return spec
}

const tokenVolumeName = "api-access"

// tokenVolume has what Kubernetes would mount, with a token that lives for an hour: the API server may let the one of Kubernetes live for a year.
func tokenVolume() *coreapply.VolumeApplyConfiguration {
	return coreapply.Volume().WithName(tokenVolumeName).WithProjected(coreapply.ProjectedVolumeSource().WithSources(
		coreapply.VolumeProjection().WithServiceAccountToken(coreapply.ServiceAccountTokenProjection().WithPath("token").WithExpirationSeconds(3600)),
		coreapply.VolumeProjection().WithConfigMap(coreapply.ConfigMapProjection().WithName("kube-root-ca.crt").WithItems(coreapply.KeyToPath().WithKey("ca.crt").
			WithPath("ca.crt"))),
		coreapply.VolumeProjection().WithDownwardAPI(coreapply.DownwardAPIProjection().WithItems(coreapply.DownwardAPIVolumeFile().WithPath("namespace").
			WithFieldRef(coreapply.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("metadata.namespace")))),
	))
}

func (k Kubelet) resources() *coreapply.ResourceRequirementsApplyConfiguration {
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
	if requests := list(k.Options.CPURequests, k.Options.RAMRequests); len(requests) > 0 {
		required.WithRequests(requests)
	}
	if limits := list(k.Options.CPULimits, k.Options.RAMLimits); len(limits) > 0 {
		required.WithLimits(limits)
	}
	return required
}

// Part is one object of a virtual kubelet.
type Part struct {
	Intent runtime.ApplyConfiguration
	Empty  interface {
		metav1.Object
		runtime.Object
	}
}

// Parts returns the objects in the order in which they are needed. The pod starts later than its rights are written.
func (k Kubelet) Parts() []Part {
	at := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	return []Part{
		{k.account(), &corev1.ServiceAccount{ObjectMeta: at(k.Namespace, Name)}},
		{k.deployment(), &appsv1.Deployment{ObjectMeta: at(k.Namespace, Name)}},
		{k.nodeBinding(), &rbacv1.ClusterRoleBinding{ObjectMeta: at("", k.bindingName())}},
		{k.tenantBinding(), &rbacv1.RoleBinding{ObjectMeta: at(k.Namespace, tenantRole)}},
		{k.leaseBinding(), &rbacv1.RoleBinding{ObjectMeta: at(LeaseSpace, k.bindingName())}},
		{k.callersBinding(), &rbacv1.RoleBinding{ObjectMeta: at(CallersSpace, k.bindingName())}},
	}
}
