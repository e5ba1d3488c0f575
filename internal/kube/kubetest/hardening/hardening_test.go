// SPDX-License-Identifier: Apache-2.0

package hardening

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// good is a pod without problems.
func good() *corev1.PodSpec {
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		InitContainers: []corev1.Container{{
			Name: "i", Resources: corev1.ResourceRequirements{Requests: memory, Limits: memory},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
		Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: memory, Limits: memory}, LivenessProbe: &corev1.Probe{}, ReadinessProbe: &corev1.Probe{},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

// token gives a container a token that lives for so long.
func token(pod *corev1.PodSpec, to *corev1.Container, seconds *int64) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: seconds}}},
	}}})
	to.VolumeMounts = append(to.VolumeMounts, corev1.VolumeMount{Name: "t", MountPath: "/elsewhere"})
}

// TestProblems breaks each rule once, in containers and init containers.
func TestProblems(t *testing.T) {
	if found := Problems(Serves, good()); len(found) > 0 {
		t.Fatalf("a good pod has problems: %q", found)
	}
	for want, change := range map[string]func(*corev1.PodSpec){
		"host network": func(p *corev1.PodSpec) { p.HostNetwork = true },
		"host PID":     func(p *corev1.PodSpec) { p.HostPID = true },
		"host IPC":     func(p *corev1.PodSpec) { p.HostIPC = true },
		"Kubernetes mounts a token into each container": func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil },
		"no seccomp profile of the runtime":             func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined },
		"unsafe sysctls":                                func(p *corev1.PodSpec) { p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_forward"}} },
		"shared process namespace":                      func(p *corev1.PodSpec) { p.ShareProcessNamespace = new(true) },
		"mounts /etc of the host": func(p *corev1.PodSpec) {
			p.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}}
		},
		"volume t: the token lives longer than an hour": func(p *corev1.PodSpec) { token(p, &p.Containers[0], new(int64(3607))) },
		"c: token":               func(p *corev1.PodSpec) { token(p, &p.Containers[0], new(int64(600))) },
		"i: token":               func(p *corev1.PodSpec) { token(p, &p.InitContainers[0], new(int64(600))) },
		"i: privileged":          func(p *corev1.PodSpec) { p.InitContainers[0].SecurityContext.Privileged = new(true) },
		"c: privileged":          func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Privileged = new(true) },
		"c: may gain privileges": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
		"c: writable root":       func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil },
		"c: keeps capabilities":  func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities.Drop = nil },
		"c: adds NET_ADMIN": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"c: other seccomp profile": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		},
		"c: unmasked /proc":       func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.ProcMount = new(corev1.UnmaskedProcMount) },
		"c: may run as root":      func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.RunAsUser = new(int64(0)) },
		"i: may run as root":      func(p *corev1.PodSpec) { p.InitContainers[0].SecurityContext.RunAsNonRoot = new(false) },
		"c: no request of memory": func(p *corev1.PodSpec) { p.Containers[0].Resources.Requests = nil },
		"c: no limit of memory":   func(p *corev1.PodSpec) { p.Containers[0].Resources.Limits = nil },
		"c: no liveness probe":    func(p *corev1.PodSpec) { p.Containers[0].LivenessProbe = nil },
		"c: no readiness probe":   func(p *corev1.PodSpec) { p.Containers[0].ReadinessProbe = nil },
		"i: no readiness probe":   func(p *corev1.PodSpec) { p.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways) },
		"c: port 80 of the host":  func(p *corev1.PodSpec) { p.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} },
		"c: a whole Secret as its environment": func(p *corev1.PodSpec) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		},
		"c: keys of a Secret as environment": func(p *corev1.PodSpec) {
			p.Containers[0].Env = []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
		},
		"c: mounts reach the host (/x)": func(p *corev1.PodSpec) {
			p.Containers[0].VolumeMounts = []corev1.VolumeMount{{MountPath: "/x", MountPropagation: new(corev1.MountPropagationBidirectional)}}
		},
		"SELinux, AppArmor or Windows options of the pod itself": func(p *corev1.PodSpec) {
			p.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		},
	} {
		pod := good()
		change(pod)
		if found := Problems(Serves, pod); !slices.Contains(found, want) {
			t.Errorf("%q was not found: %q", want, found)
		}
	}
	// A pod that sets nothing has nearly all of them.
	if found := Problems(Serves, &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}); len(found) < 9 {
		t.Errorf("a pod without settings: %q", found)
	}
}
