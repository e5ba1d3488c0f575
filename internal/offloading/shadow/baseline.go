// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// Level is how much of a node pods of peers may reach.
type Level string

// The levels. Besides, Pod Security Admission does what labels on a namespace tell it.
const (
	// Baseline is the Pod Security Standard of that name.
	Baseline Level = "baseline"
	// Privileged lets everything through that no rule of its own forbids: peers are trusted with the nodes.
	Privileged Level = "privileged"
)

// Words of the standard.
var (
	capabilities = []corev1.Capability{
		"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
	}
	sysctls = []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	}
	selinuxTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)

const appArmorAnnotation = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// baseline returns the first thing that the standard forbids.
func baseline(shadow *vkv1alpha1.ShadowPod) string {
	spec := &shadow.Spec.Pod
	for key, profile := range shadow.Annotations {
		if strings.HasPrefix(key, appArmorAnnotation) && profile != "" && profile != "runtime/default" && !strings.HasPrefix(profile, "localhost/") {
			return fmt.Sprintf("annotation %.253s is %.63q", key, profile)
		}
		if given := Reach(key); given != "" {
			return fmt.Sprintf("annotation %.253s asks for %s", key, given)
		}
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].HostPath != nil {
			return fmt.Sprintf("spec.pod.volumes[%d].hostPath is set", i)
		}
	}
	if problem := baselineVolumes(spec.Volumes); problem != "" {
		return "spec.pod." + problem
	}
	if problem := baselinePod(spec.SecurityContext); problem != "" {
		return "spec.pod.securityContext." + problem
	}
	for list, containers := range map[string][]corev1.Container{"initContainers": spec.InitContainers, "containers": spec.Containers} {
		for i := range containers {
			if problem := baselineContainer(&containers[i]); problem != "" {
				return fmt.Sprintf("spec.pod.%s[%d].%s", list, i, problem)
			}
		}
	}
	for i := range spec.EphemeralContainers {
		one := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		if one.SecurityContext != nil && one.SecurityContext.Capabilities != nil {
			one.SecurityContext = one.SecurityContext.DeepCopy()
			one.SecurityContext.Capabilities.Add = slices.DeleteFunc(one.SecurityContext.Capabilities.Add, traces)
		}
		if problem := baselineContainer(&one); problem != "" {
			return fmt.Sprintf("spec.pod.ephemeralContainers[%d].%s", i, problem)
		}
	}
	return ""
}

// traces is what the standard forbids and `kubectl debug` asks for unless it is told otherwise: without it nobody debugs a pod of his over
// here. It reaches processes that a container sees, and containers of peers see those of their own pod at most.
func traces(capability corev1.Capability) bool { return capability == "SYS_PTRACE" }

// baselineVolumes is stricter than the standard, and as strict as the next: what a node mounts over its own network, it mounts as itself, and
// a file server that trusts the nodes of this cluster has the volumes of everybody in it. A driver named in a pod does what the peer tells it.
func baselineVolumes(volumes []corev1.Volume) string {
	for i := range volumes {
		other := volumes[i].VolumeSource
		other.ConfigMap, other.Secret, other.DownwardAPI, other.Projected, other.EmptyDir = nil, nil, nil, nil, nil
		other.PersistentVolumeClaim, other.Ephemeral, other.Image = nil, nil, nil
		if other != (corev1.VolumeSource{}) {
			return fmt.Sprintf("volumes[%d] (%.63s) is mounted by the node as the pod says; use a claim", i, volumes[i].Name)
		}
	}
	return ""
}

func baselinePod(context *corev1.PodSecurityContext) string {
	if context == nil {
		return ""
	}
	for i := range context.Sysctls {
		if !slices.Contains(sysctls, context.Sysctls[i].Name) {
			return fmt.Sprintf("sysctls[%d] is %.63q", i, context.Sysctls[i].Name)
		}
	}
	return profiles(context.SeccompProfile, context.AppArmorProfile, context.SELinuxOptions, context.WindowsOptions)
}

func baselineContainer(container *corev1.Container) string {
	for i := range container.Ports {
		if container.Ports[i].HostPort != 0 {
			return fmt.Sprintf("ports[%d].hostPort is %d", i, container.Ports[i].HostPort)
		}
	}
	if problem := baselineProbes(container); problem != "" {
		return problem
	}
	if container.SecurityContext == nil {
		return ""
	}
	return baselineSecurity(container.SecurityContext)
}

// baselineProbes: the kubelet of a node, in the network of the node, sends requests with headers of the pod's choice to where these say.
func baselineProbes(container *corev1.Container) string {
	said := func(get *corev1.HTTPGetAction, connect *corev1.TCPSocketAction) string {
		switch {
		case get != nil && get.Host != "":
			return fmt.Sprintf("httpGet.host is %.253q", get.Host)
		case connect != nil && connect.Host != "":
			return fmt.Sprintf("tcpSocket.host is %.253q", connect.Host)
		}
		return ""
	}
	for name, probe := range map[string]*corev1.Probe{
		"livenessProbe": container.LivenessProbe, "readinessProbe": container.ReadinessProbe, "startupProbe": container.StartupProbe,
	} {
		if probe != nil {
			if problem := said(probe.HTTPGet, probe.TCPSocket); problem != "" {
				return name + "." + problem
			}
		}
	}
	if container.Lifecycle == nil {
		return ""
	}
	for name, hook := range map[string]*corev1.LifecycleHandler{"postStart": container.Lifecycle.PostStart, "preStop": container.Lifecycle.PreStop} {
		if hook != nil {
			if problem := said(hook.HTTPGet, hook.TCPSocket); problem != "" {
				return "lifecycle." + name + "." + problem
			}
		}
	}
	return ""
}

func baselineSecurity(context *corev1.SecurityContext) string {
	if context.Privileged != nil && *context.Privileged {
		return "securityContext.privileged is true"
	}
	if context.ProcMount != nil && *context.ProcMount != corev1.DefaultProcMount {
		return fmt.Sprintf("securityContext.procMount is %.63q", *context.ProcMount)
	}
	if context.Capabilities != nil {
		for _, one := range context.Capabilities.Add {
			if !slices.Contains(capabilities, one) {
				return fmt.Sprintf("securityContext.capabilities.add has %.63q", one)
			}
		}
	}
	if problem := profiles(context.SeccompProfile, context.AppArmorProfile, context.SELinuxOptions, context.WindowsOptions); problem != "" {
		return "securityContext." + problem
	}
	return ""
}

// profiles are the same for a pod and a container.
func profiles(seccomp *corev1.SeccompProfile, armor *corev1.AppArmorProfile, selinux *corev1.SELinuxOptions, windows *corev1.WindowsSecurityContextOptions) string {
	switch {
	case seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeUnconfined:
		return "seccompProfile.type is Unconfined"
	case armor != nil && armor.Type == corev1.AppArmorProfileTypeUnconfined:
		return "appArmorProfile.type is Unconfined"
	case selinux != nil && (selinux.User != "" || selinux.Role != "" || !slices.Contains(selinuxTypes, selinux.Type)):
		return "seLinuxOptions has a user, a role, or a type that is not for containers"
	case windows != nil && windows.HostProcess != nil && *windows.HostProcess:
		return "windowsOptions.hostProcess is true"
	}
	return ""
}
