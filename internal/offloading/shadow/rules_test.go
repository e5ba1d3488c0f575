// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

func shadowPod(change func(*vkv1alpha1.ShadowPod)) *vkv1alpha1.ShadowPod {
	s := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "remote", Name: "web", UID: "shadow", Labels: map[string]string{labels.Origin: "rome-id", "app": "web"},
		},
		Spec: vkv1alpha1.ShadowPodSpec{Fence: "fence", Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func spec(change func(*corev1.PodSpec)) *vkv1alpha1.ShadowPod {
	return shadowPod(func(s *vkv1alpha1.ShadowPod) { change(&s.Spec.Pod) })
}

func volume(source corev1.VolumeSource) *vkv1alpha1.ShadowPod {
	return spec(func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} })
}

func projected(projection corev1.VolumeProjection) *vkv1alpha1.ShadowPod {
	return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{}}, projection,
	}}})
}

func security(context corev1.SecurityContext) *vkv1alpha1.ShadowPod {
	return spec(func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = &context })
}

func annotated(key, value string) *vkv1alpha1.ShadowPod {
	return shadowPod(func(s *vkv1alpha1.ShadowPod) { s.Annotations = map[string]string{key: value} })
}

// template returns a ShadowPod with an ephemeral volume.
func template(change func(*corev1.PersistentVolumeClaimTemplate)) *vkv1alpha1.ShadowPod {
	var claim corev1.PersistentVolumeClaimTemplate
	change(&claim)
	return spec(func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &claim}}}}
	})
}

// hostile is what a peer may try with ShadowPods of its own, and a word of the refusal.
var hostile = []struct {
	name   string
	shadow *vkv1alpha1.ShadowPod
	want   string
	// trusted: refused unless peers are trusted with the nodes.
	trusted bool
}{
	{"another peer's", shadowPod(func(s *vkv1alpha1.ShadowPod) { s.Labels[labels.Origin] = "milan-id" }), "rome-id", false},
	{"without origin", shadowPod(func(s *vkv1alpha1.ShadowPod) { s.Labels = nil }), "rome-id", false},
	{
		"owned by something here", shadowPod(func(s *vkv1alpha1.ShadowPod) { s.OwnerReferences = []metav1.OwnerReference{{Kind: "Node"}} }),
		"ownerReferences", false,
	},
	{"a static pod", annotated(corev1.MirrorPodAnnotationKey, "x"), "kubelets", false},
	{"no container", spec(func(s *corev1.PodSpec) { s.Containers = nil }), "containers", false},
	{"a thousand containers", spec(func(s *corev1.PodSpec) { s.InitContainers = make([]corev1.Container, 1000) }), "at most", false},
	{"a thousand volumes", spec(func(s *corev1.PodSpec) { s.Volumes = make([]corev1.Volume, 1000) }), "at most", false},
	{"a thousand tolerations", spec(func(s *corev1.PodSpec) { s.Tolerations = make([]corev1.Toleration, 1000) }), "at most", false},
	{"the node's network", spec(func(s *corev1.PodSpec) { s.HostNetwork = true }), "hostNetwork", false},
	{"the node's processes", spec(func(s *corev1.PodSpec) { s.HostPID = true }), "hostPID", false},
	{"the node's memory", spec(func(s *corev1.PodSpec) { s.HostIPC = true }), "hostIPC", false},
	{"an account", spec(func(s *corev1.PodSpec) { s.ServiceAccountName = "admin" }), "serviceAccountName", false},
	{"an account, by its old name", spec(func(s *corev1.PodSpec) { s.DeprecatedServiceAccount = "admin" }), "serviceAccount", false},
	{"a token", spec(func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = new(true) }), "automount", false},
	{"a token, projected", projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}), "sources[1]", false},
	{"a certificate, projected", projected(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}), "sources[1]", false},
	{"a node", spec(func(s *corev1.PodSpec) { s.NodeName = "control-plane" }), "nodeName", false},
	{"kinds of nodes", spec(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": "b"} }), "nodeSelector", false},
	{"kinds of nodes, as affinity", spec(func(s *corev1.PodSpec) { s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }), "nodeAffinity", false},
	{"beside pods", spec(func(s *corev1.PodSpec) { s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}} }), "podAffinity", false},
	{"away from others' pods", spec(func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"kube-system"}}}},
		}
	}), "namespaces", false},
	{"away from all pods", spec(func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{PodAffinityTerm: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}},
		}}}
	}), "namespaces", false},
	{"another scheduler", spec(func(s *corev1.PodSpec) { s.SchedulerName = "mine" }), "schedulerName", false},
	{"gates", spec(func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }), "schedulingGates", false},
	{"a priority class", spec(func(s *corev1.PodSpec) { s.PriorityClassName = "system-node-critical" }), "priorityClassName", false},
	{"a priority", spec(func(s *corev1.PodSpec) { s.Priority = new(int32(2_000_000_000)) }), "priority", false},
	{"preemption", spec(func(s *corev1.PodSpec) { s.PreemptionPolicy = new(corev1.PreemptLowerPriority) }), "preemptionPolicy", false},
	{"a runtime", spec(func(s *corev1.PodSpec) { s.RuntimeClassName = new("bare") }), "runtimeClassName", false},
	{"an overhead", spec(func(s *corev1.PodSpec) { s.Overhead = corev1.ResourceList{"cpu": resource.MustParse("-5")} }), "overhead", false},
	{"devices", spec(func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }), "resourceClaims", false},
	{"a group", spec(func(s *corev1.PodSpec) { s.SchedulingGroup = &corev1.PodSchedulingGroup{} }), "schedulingGroup", false},
	{"a word in evictions", spec(func(s *corev1.PodSpec) { s.EvictionResponders = make([]corev1.EvictionResponder, 1) }), "evictionResponders", false},
	{"to be passed on", spec(func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
	}), "passed on", false},

	{"a directory of the node", volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), "hostPath", true},
	{"the volumes of everybody", volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.storage", Path: "/"}}), "volumes[0]", true},
	{"a driver of the node", volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "nfs.csi.k8s.io"}}), "volumes[0]", true},
	{"what the node runs", volume(corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{Repository: "https://example.com"}}), "volumes[0]", true},
	{"a plugin of the node", volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "x"}}), "volumes[0]", true},
	{"privileged", security(corev1.SecurityContext{Privileged: new(true)}), "privileged", true},
	{"privileged init container", spec(func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{Name: "setup", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}
	}), `container "setup" must not set securityContext.privileged`, true},
	{"privileged, later on", spec(func(s *corev1.PodSpec) {
		s.EphemeralContainers = []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}},
		}
	}), `container "debugger" must not set securityContext.privileged`, true},
	{"a capability", security(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}), "SYS_ADMIN", true},
	{"a capability, later on", spec(func(s *corev1.PodSpec) {
		s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE", "NET_ADMIN"}}},
		}}}
	}), "NET_ADMIN", true},
	{
		"a look into others, from the start",
		security(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}), "SYS_PTRACE", true,
	},
	{"the whole of /proc", security(corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}), "procMount", true},
	{"the whole of /proc, in a user namespace that the API server may drop", spec(func(s *corev1.PodSpec) {
		s.HostUsers, s.Containers[0].SecurityContext = new(false), &corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}
	}), "procMount", true},
	{"a seccomp profile of an unknown type", security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: "None"}}), "seccomp", true},
	{"an AppArmor profile of an unknown type", security(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: "None"}}), "AppArmor", true},
	{"no seccomp", security(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}), "seccomp", true},
	{"no AppArmor", security(corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}), "AppArmor", true},
	{"no AppArmor, as an annotation", annotated(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+"c", "unconfined"), "unconfined", true},
	{"no seccomp, as an annotation", annotated("seccomp.security.alpha.kubernetes.io/pod", "unconfined"), "seccomp profile", true},
	{"no seccomp of a container, as an annotation", annotated("container.seccomp.security.alpha.kubernetes.io/c", "unconfined"), "seccomp profile", true},
	{"another namespace's network", annotated("k8s.v1.cni.cncf.io/networks", "kube-system/storage"), "another namespace's", true},
	{"another namespace's network instead of its own", annotated("v1.multus-cni.io/default-network", "kube-system/storage"), "another namespace's", true},
	{"an address", annotated("cni.projectcalico.org/ipAddrsNoIpam", `["10.0.0.10"]`), "choice of addresses", true},
	{"packets from anywhere", annotated("cni.projectcalico.org/allowedSourcePrefixes", `["0.0.0.0/0"]`), "choice of addresses", true},
	{"a role in the cloud", annotated("iam.amazonaws.com/role", "admin"), "cloud", true},
	{"a device of the node", annotated("io.kubernetes.cri-o.Devices", "/dev/sda"), "container runtime", true},
	{"another SELinux type", security(corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}), "seLinux", true},
	{"the host, on Windows", security(corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}}), "hostProcess", true},
	{"a port of the node", spec(func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 22}} }), "hostPort", true},
	{"a request of the node, to live", spec(func(s *corev1.PodSpec) {
		s.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}}
	}), `probe or lifecycle host "169.254.169.254"`, true},
	{"a request of the node, by an init container", spec(func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1"}}}}}
	}), `probe or lifecycle host "127.0.0.1"`, true},
	{"a request of the node, at once", spec(func(s *corev1.PodSpec) {
		s.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1"}}}
	}), `probe or lifecycle host "127.0.0.1"`, true},
	{"a request of the node, at last", spec(func(s *corev1.PodSpec) {
		s.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1"}}}
	}), `probe or lifecycle host "127.0.0.1"`, true},
	{"the volume of others", template(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.VolumeName = "backup" }), "spec.volumeName", false},
	{"volumes of others", template(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.Selector = &metav1.LabelSelector{} }), "spec.selector", false},
	{"any volume without a class", template(func(c *corev1.PersistentVolumeClaimTemplate) { c.Spec.StorageClassName = new("") }), "spec.storageClassName", false},
	{
		"a claim that nothing ends", template(func(c *corev1.PersistentVolumeClaimTemplate) { c.Finalizers = []string{"example.com/held"} }),
		"metadata.finalizers", false,
	},
	{"a switch of the kernel", spec(func(s *corev1.PodSpec) {
		s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax"}}}
	}), "kernel.msgmax", true},
}

// anything is for tests of other rules than the lists of keys.
var anything = metadata.Allowed{Labels: metadata.Keys{"*"}, Annotations: metadata.Keys{"*"}, Tolerations: metadata.Keys{"*"}}

func TestHostileShadowPods(t *testing.T) {
	for _, c := range hostile {
		if problem := Check(c.shadow, "rome-id", Baseline); !strings.Contains(problem, c.want) || problem == "" {
			t.Errorf("%s: %q, want %q", c.name, problem, c.want)
		}
		if problem := Check(c.shadow, "rome-id", Privileged); (problem == "") != c.trusted {
			t.Errorf("%s, from one that is trusted: %q", c.name, problem)
		}
		// Even if it is admitted, the fields that the provider decides do not come from the peer.
		pod := Pod(c.shadow, "rome-id", anything)
		if s := &pod.Spec; s.HostNetwork || s.HostPID || s.HostIPC || s.ServiceAccountName != "default" || *s.AutomountServiceAccountToken ||
			s.NodeName != "" || s.PriorityClassName != "" || s.Priority != nil || s.RuntimeClassName != nil || pod.Labels[labels.Origin] != "rome-id" {
			t.Errorf("%s: the pod has it: %+v", c.name, pod)
		}
	}
}

// TestAttackM5Restricted: at the level restricted, nothing passes that the level baseline refuses, and neither does root.
func TestAttackM5Restricted(t *testing.T) {
	for _, c := range hostile {
		if Check(c.shadow, "rome-id", Restricted) == "" {
			t.Errorf("%s is accepted", c.name)
		}
	}
	strict := func(change func(*corev1.SecurityContext)) *vkv1alpha1.ShadowPod {
		context := corev1.SecurityContext{
			RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		change(&context)
		return security(context)
	}
	if problem := Check(strict(func(*corev1.SecurityContext) {}), "rome-id", Restricted); problem != "" {
		t.Errorf("a restricted pod: %s", problem)
	}
	for name, s := range map[string]*vkv1alpha1.ShadowPod{
		"plain": shadowPod(nil), "root": strict(func(c *corev1.SecurityContext) { c.RunAsUser = new(int64(0)) }),
		"perhaps root":           strict(func(c *corev1.SecurityContext) { c.RunAsNonRoot = nil }),
		"capabilities":           strict(func(c *corev1.SecurityContext) { c.Capabilities = nil }),
		"escalation":             strict(func(c *corev1.SecurityContext) { c.AllowPrivilegeEscalation = nil }),
		"a debugger that traces": ordinary()["what kubectl debug adds"],
	} {
		if problem := Check(s, "rome-id", Restricted); !strings.Contains(problem, `"restricted"`) {
			t.Errorf("%s: %q", name, problem)
		}
	}
}

// TestTolerations: a pod of a peer tolerates no guarded taint, neither when it is created nor later.
func TestTolerations(t *testing.T) {
	allowed := corev1.Toleration{Key: "example.com/gpu", Operator: corev1.TolerationOpExists}
	s := spec(func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{
			{Operator: corev1.TolerationOpExists},
			{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists},
			allowed,
			{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists},
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Operator: corev1.TolerationOpExists},
			{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists},
		}
	})
	if pod := Pod(s, "rome-id", anything); !slices.Equal(pod.Spec.Tolerations, []corev1.Toleration{allowed}) {
		t.Errorf("the pod tolerates %v", pod.Spec.Tolerations)
	}
	bare := Pod(spec(func(*corev1.PodSpec) {}), "rome-id", anything)
	rest := Amend(s, bare, "rome-id", "us", anything).Rest
	var added []any
	for _, op := range rest {
		if strings.HasPrefix(op.Path, "/spec/tolerations") {
			added = append(added, op.Value)
		}
	}
	if len(added) != 1 || !reflect.DeepEqual(added[0], []any{allowed}) {
		t.Errorf("later it is given %v", added)
	}
}

// ordinary returns what pods commonly ask for.
func ordinary() map[string]*vkv1alpha1.ShadowPod {
	return map[string]*vkv1alpha1.ShadowPod{
		"plain": shadowPod(nil),
		"as reflection sends it": spec(func(s *corev1.PodSpec) {
			s.AutomountServiceAccountToken = new(false)
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			s.Affinity = &corev1.Affinity{
				PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "kubernetes.io/hostname"}}},
			}
			s.SecurityContext = &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		}),
		"the token of its own cluster": projected(corev1.VolumeProjection{
			Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "web-token"}},
		}),
		"annotations of its own": annotated("k8s.v1.cni.cncf.io/network-status", "[]"),
		"what kubectl debug adds": spec(func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debugger", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
			}}}
		}),
		"less than usual": security(corev1.SecurityContext{
			Privileged:   new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
		}),
	}
}

// TestOrdinaryShadowPods: the fields of ordinary pods are accepted.
func TestOrdinaryShadowPods(t *testing.T) {
	for name, s := range ordinary() {
		if problem := Check(s, "rome-id", Baseline); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// TestAllFieldsAreKnown: a new version of Kubernetes may add fields to pods. A developer must decide on each of them.
func TestAllFieldsAreKnown(t *testing.T) {
	known := strings.Fields(`Volumes InitContainers Containers EphemeralContainers RestartPolicy TerminationGracePeriodSeconds ActiveDeadlineSeconds DNSPolicy
		NodeSelector ServiceAccountName DeprecatedServiceAccount AutomountServiceAccountToken NodeName HostNetwork HostPID HostIPC ShareProcessNamespace
		SecurityContext ImagePullSecrets Hostname Subdomain Affinity SchedulerName Tolerations HostAliases PriorityClassName Priority DNSConfig
		ReadinessGates RuntimeClassName EnableServiceLinks PreemptionPolicy Overhead TopologySpreadConstraints SetHostnameAsFQDN OS HostUsers
		SchedulingGates ResourceClaims Resources HostnameOverride SchedulingGroup EvictionResponders`)
	for field := range reflect.TypeFor[corev1.PodSpec]().Fields() {
		if !slices.Contains(known, field.Name) {
			t.Errorf("PodSpec has a field %s: decide in checkScheduling or baseline whether a peer may set it, then add it here", field.Name)
		}
	}
	sources := strings.Fields("Secret DownwardAPI ConfigMap ServiceAccountToken ClusterTrustBundle PodCertificate")
	for field := range reflect.TypeFor[corev1.VolumeProjection]().Fields() {
		if !slices.Contains(sources, field.Name) {
			t.Errorf("volumes can be projected from %s: decide in checkVolumes whether that is a credential, then add it here", field.Name)
		}
	}
}

func TestCheckUpdate(t *testing.T) {
	before := spec(func(s *corev1.PodSpec) {
		s.ActiveDeadlineSeconds, s.Tolerations = new(int64(100)), []corev1.Toleration{{Key: "a"}}
		s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "one"}}}
		s.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "1", "example.com/gpu", "1")}
		s.Resources = &corev1.ResourceRequirements{Limits: list("memory", "1Gi")}
	})
	for _, c := range []struct {
		name, want string
		change     func(*corev1.PodSpec)
	}{
		{"nothing", "", func(*corev1.PodSpec) {}},
		{"an image", "", func(s *corev1.PodSpec) { s.Containers[0].Image = "new" }},
		{"a shorter deadline", "", func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(10)) }},
		{"a toleration more", "", func(s *corev1.PodSpec) { s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: "b"}) }},
		{"an ephemeral container more", "", func(s *corev1.PodSpec) {
			s.EphemeralContainers = append(s.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "two"}})
		}},
		{"a longer deadline", "activeDeadline", func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(1000)) }},
		{"no deadline", "activeDeadline", func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = nil }},
		{"no toleration", "tolerations", func(s *corev1.PodSpec) { s.Tolerations = nil }},
		{"no ephemeral container", "ephemeral", func(s *corev1.PodSpec) { s.EphemeralContainers = nil }},
		{"another ephemeral container", "ephemeral", func(s *corev1.PodSpec) { s.EphemeralContainers[0].Image = "x" }},
		{"a container more", "containers", func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "d"}) }},
		{"a container's name", "cannot be changed", func(s *corev1.PodSpec) { s.Containers[0].Name = "d" }},
		{"CPU and memory", "", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = list("cpu", "2", "memory", "1Gi")
			s.Containers[0].Resources.Limits["cpu"] = resource.MustParse("900")
			s.Resources.Limits = list("memory", "2Gi")
		}},
		{"no request", "cannot be changed", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = nil }},
		{"another device", "cannot be changed", func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("2") }},
		{"a claim", "cannot be changed", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		}},
		{"restarts", "cannot be changed", func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyNever }},
		{"volumes", "cannot be changed", func(s *corev1.PodSpec) { s.Volumes = make([]corev1.Volume, 1) }},
	} {
		after := before.DeepCopy()
		c.change(&after.Spec.Pod)
		kept := after.DeepCopy()
		if problem := CheckUpdate(before, after); (problem == "") != (c.want == "") || !strings.Contains(problem, c.want) {
			t.Errorf("%s: %q, want %q", c.name, problem, c.want)
		}
		if !reflect.DeepEqual(after, kept) {
			t.Errorf("%s: CheckUpdate changed its argument", c.name)
		}
	}
	other := before.DeepCopy()
	other.Spec.Fence = "other"
	if CheckUpdate(before, other) == "" {
		t.Error("another fence")
	}
	held := before.DeepCopy()
	held.Finalizers = []string{"example.com/for-ever"}
	if CheckFinalizers(before, held) == "" || CheckFinalizers(nil, held) == "" || CheckFinalizers(held, held) != "" {
		t.Error("finalizers")
	}
	ours := before.DeepCopy()
	ours.Finalizers = []string{labels.FinalizerPodGone}
	if CheckFinalizers(nil, ours) != "" || CheckFinalizers(before, ours) == "" || CheckFinalizers(ours, before) != "" {
		t.Error("our finalizer, of a new ShadowPod and of one that exists")
	}
}

func TestMark(t *testing.T) {
	full := spec(func(s *corev1.PodSpec) {
		s.Volumes, s.Tolerations = make([]corev1.Volume, 1), []corev1.Toleration{}
		s.Containers[0].Env = []corev1.EnvVar{{Name: "A"}}
	})
	trimmed := full.DeepCopy()
	Trim(trimmed)
	if Revision(full) != Revision(trimmed) || len(trimmed.Spec.Pod.Volumes)+len(trimmed.Spec.Pod.Containers[0].Env) > 0 {
		t.Error("a trimmed ShadowPod has another revision")
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*vkv1alpha1.ShadowPod){
		"nothing":    func(*vkv1alpha1.ShadowPod) {},
		"label":      func(s *vkv1alpha1.ShadowPod) { s.Labels["x"] = "y" },
		"annotation": func(s *vkv1alpha1.ShadowPod) { s.Annotations = map[string]string{"x": "y"} },
		"image":      func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Image = "y" },
		"deadline":   func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.ActiveDeadlineSeconds = new(int64(1)) },
		"toleration": func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Tolerations = make([]corev1.Toleration, 1) },
		"ephemeral":  func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.EphemeralContainers = make([]corev1.EphemeralContainer, 1) },
		"uid":        func(s *vkv1alpha1.ShadowPod) { s.UID = "y" },
		"resize": func(s *vkv1alpha1.ShadowPod) {
			s.Generation, s.Spec.Pod.Containers[0].Resources.Limits = 2, list("cpu", "9")
		},
	} {
		s := full.DeepCopy()
		change(s)
		if other, ok := seen[Revision(s)]; ok {
			t.Errorf("%s and %s have the same revision", name, other)
		}
		seen[Revision(s)] = name
	}
	forged := shadowPod(func(s *vkv1alpha1.ShadowPod) {
		s.Annotations = map[string]string{labels.ShadowPodRevision: "someone/else"}
	})
	if got := Pod(forged, "rome-id", anything).Annotations[labels.ShadowPodRevision]; !strings.HasPrefix(got, "shadow/") {
		t.Errorf("a peer chose the revision: %s", got)
	}
}

func TestAmend(t *testing.T) {
	pod := Pod(shadowPod(nil), "rome-id", anything)
	pod.UID = "pod"
	delete(pod.Annotations, labels.ShadowPodKeys) // of an earlier version
	pod.Labels["theirs"], pod.Labels["old/key"] = "kept", "ours"
	pod.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "injected"}}, pod.Spec.Containers...)
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "us", Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:old/key":{}}}}`),
	}}
	s := shadowPod(func(s *vkv1alpha1.ShadowPod) {
		s.Labels["new"] = ""
		s.Spec.Pod.Containers[0].Image = "new"
		s.Spec.Pod.ActiveDeadlineSeconds, s.Spec.Pod.Tolerations = new(int64(5)), []corev1.Toleration{{Key: "a"}, {Key: "b"}}
		s.Spec.Pod.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	})
	s.Spec.Pod.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: list("cpu", "2", "memory", "1Gi", "example.com/gpu", "2"), Limits: list("cpu", "3", "memory", "1Gi"),
	}
	pod.Spec.Containers[1].Resources = corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi")}
	patches := Amend(s, pod, "rome-id", "us", anything)
	got := []string{}
	for _, op := range slices.Concat(patches.Ephemeral, patches.Resize, patches.Rest) {
		got = append(got, op.Op+" "+op.Path)
	}
	if len(patches.Unrecorded) != len(patches.Rest)-1 {
		t.Errorf("without the revision: %v", patches.Unrecorded)
	}
	want := []string{
		"test /metadata/uid", "add /spec/ephemeralContainers",
		"test /metadata/uid", "test /spec/containers/1/name", "add /spec/containers/1/resources/requests/cpu", "add /spec/containers/1/resources/limits",
		"test /metadata/uid", "add /metadata/labels/new", "remove /metadata/labels/old~1key",
		"add /metadata/annotations/virtualkubelet.liqo.io~1shadow-pod", "add /metadata/annotations/virtualkubelet.liqo.io~1shadow-pod-sent",
		"test /spec/containers/1/name", "replace /spec/containers/1/image", "add /spec/activeDeadlineSeconds", "add /spec/tolerations", "add /spec/tolerations/-",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGivenKeys: a pod loses the labels and annotations that its ShadowPod loses, and keeps those of other clients, by what it records itself.
func TestGivenKeys(t *testing.T) {
	s := shadowPod(func(s *vkv1alpha1.ShadowPod) {
		s.Labels["tier"], s.Labels["keep"] = "front", "1"
		s.Annotations = map[string]string{"note": "1", labels.Fence: "f", labels.ShadowPodKeys: "theirs;theirs"}
	})
	pod := Pod(s, "rome-id", anything)
	pod.UID = "pod"
	if got := pod.Annotations[labels.ShadowPodKeys]; got != "app,keep,tier;note" {
		t.Errorf("recorded: %q", got)
	}
	pod.Labels["theirs"], pod.Annotations["theirs"], pod.Annotations["kubernetes.io/limit-ranger"] = "1", "1", "1"
	delete(s.Labels, "tier")
	delete(s.Annotations, "note")
	s.Labels["new"] = "1"
	var got []string
	for _, op := range Amend(s, pod, "rome-id", "us", anything).Rest {
		got = append(got, strings.TrimSpace(fmt.Sprint(op.Op, " ", op.Path)))
	}
	want := []string{
		"test /metadata/uid", "add /metadata/labels/new", "remove /metadata/labels/tier",
		"add /metadata/annotations/virtualkubelet.liqo.io~1shadow-pod", "add /metadata/annotations/virtualkubelet.liqo.io~1shadow-pod-keys",
		"add /metadata/annotations/virtualkubelet.liqo.io~1shadow-pod-sent",
		"remove /metadata/annotations/note",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// A record that a peer wrote, which an earlier version copied, does not reach the keys that only the provider sets.
	pod.Labels["security.example.com/zone"], pod.Annotations["cni.example.com/address"] = "1", "1"
	pod.Annotations[labels.ShadowPodKeys] = "security.example.com/zone," + labels.Origin + ";cni.example.com/address," + labels.ShadowPodRevision
	for _, op := range Amend(s, pod, "rome-id", "us", metadata.Allowed{}).Rest {
		if op.Op == "remove" {
			t.Errorf("a peer removes %s", op.Path)
		}
	}
	// Too many keys at last: the record stays as it was, and the change is applied.
	many := s.DeepCopy()
	for i := range 400 {
		many.Labels[fmt.Sprintf("%s/%d", strings.Repeat("a", 50), i)] = ""
	}
	added := 0
	for _, op := range Amend(many, pod, "rome-id", "us", anything).Rest {
		switch {
		case strings.HasPrefix(op.Path, "/metadata/labels/aaa"):
			added++
		case op.Path == "/metadata/annotations/"+pointer(labels.ShadowPodKeys):
			t.Errorf("the record becomes %.100v", op.Value)
		}
	}
	if added != 400 {
		t.Errorf("%d of 400 labels are added", added)
	}

	for i := range 400 { // valid in a ShadowPod; the pod would exceed its bound if it recorded them
		s.Annotations[fmt.Sprintf("%s/%d", strings.Repeat("a", 50), i)] = ""
	}
	if recorded, ok := Pod(s, "rome-id", anything).Annotations[labels.ShadowPodKeys]; ok {
		t.Errorf("%d bytes are recorded", len(recorded))
	}
}

// TestDebuggersDoNotTrace: the Pod Security label of a remote namespace refuses SYS_PTRACE, which kubectl debug asks for.
func TestDebuggersDoNotTrace(t *testing.T) {
	asks := &vkv1alpha1.ShadowPod{}
	asks.Spec.Pod.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE", "KILL"}}},
	}}}
	for tracing, want := range map[bool]string{false: "[KILL]", true: "[SYS_PTRACE KILL]"} {
		ops := Amend(asks, &corev1.Pod{}, "rome", "owner", metadata.Allowed{Tracing: tracing}).Ephemeral
		added, ok := ops[len(ops)-1].Value.([]any)
		if !ok || len(added) != 1 {
			t.Fatalf("%+v", ops)
		}
		if got := fmt.Sprint(added[0].(corev1.EphemeralContainer).SecurityContext.Capabilities.Add); got != want {
			t.Errorf("with tracing %t: %s", tracing, got)
		}
	}
	if len(asks.Spec.Pod.EphemeralContainers[0].SecurityContext.Capabilities.Add) != 2 {
		t.Error("the ShadowPod was changed")
	}
}
