// SPDX-License-Identifier: Apache-2.0

// Package hardening judges the pods that the chart and the controllers create: what each may do to its node, what it holds, and what bounds it.
//
// [Problems] has one rule for all of them; [Check] compares with what a test accepts, each with a reason. It must not know which pods there are. Its proof is
// hardening_test.go, which breaks each rule once. The conventions name the places of the repository that make pods, and look for this package in their tests.
package hardening

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// tokenPath is where clients look for the token of their account.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// longestToken is how long a mounted token may live, in seconds. Kubernetes extends those of 3607 seconds to a year.
const longestToken = 3600

// Lasting distinguishes pods that work until they are deleted from those that end, or are deleted within minutes.
type Lasting bool

// The two kinds of pods.
const (
	Serves Lasting = true
	Ends   Lasting = false
)

// Check reports each problem of a pod that is not accepted, and each accepted one that is not there. accepted maps problems to reasons.
func Check(t testing.TB, name string, lasting Lasting, pod *corev1.PodSpec, accepted map[string]string) {
	t.Helper()
	found := Problems(lasting, pod)
	for _, problem := range found {
		if accepted[problem] == "" {
			t.Errorf("%s: %s: remove it, or accept it in this test with a reason", name, problem)
		}
	}
	for problem := range maps.Keys(accepted) {
		if !slices.Contains(found, problem) {
			t.Errorf("%s: %q is accepted, but the pod has no such problem: remove the line", name, problem)
		}
	}
}

// Problems returns what a pod can do or misses beyond the strictest standard, sorted. A token that a container mounts is in it: it needs a reason, too.
func Problems(lasting Lasting, pod *corev1.PodSpec) []string {
	found := map[string]bool{}
	report := func(format string, args ...any) { found[fmt.Sprintf(format, args...)] = true }
	for name, on := range map[string]bool{
		"host network": pod.HostNetwork, "host PID": pod.HostPID, "host IPC": pod.HostIPC,
		"shared process namespace":                      pod.ShareProcessNamespace != nil && *pod.ShareProcessNamespace,
		"Kubernetes mounts a token into each container": pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken,
		"unsafe sysctls":                                pod.SecurityContext != nil && len(pod.SecurityContext.Sysctls) > 0,
		"no seccomp profile of the runtime":             pod.SecurityContext == nil || unconfined(pod.SecurityContext.SeccompProfile),
		"SELinux, AppArmor or Windows options of the pod itself": pod.SecurityContext != nil && (pod.SecurityContext.SELinuxOptions != nil ||
			pod.SecurityContext.AppArmorProfile != nil || pod.SecurityContext.WindowsOptions != nil),
	} {
		if on {
			report("%s", name)
		}
	}
	tokens := map[string]bool{}
	for i := range pod.Volumes {
		volume := &pod.Volumes[i]
		if volume.HostPath != nil {
			report("mounts %s of the host", volume.HostPath.Path)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken == nil {
				continue
			}
			tokens[volume.Name] = true
			if seconds := source.ServiceAccountToken.ExpirationSeconds; seconds == nil || *seconds > longestToken {
				report("volume %s: the token lives longer than an hour", volume.Name)
			}
		}
	}
	for i := range pod.InitContainers {
		// An init container that restarts always is a sidecar, which serves as long as the pod.
		policy := pod.InitContainers[i].RestartPolicy
		container(&pod.InitContainers[i], Lasting(policy != nil && *policy == corev1.ContainerRestartPolicyAlways) && lasting, pod.SecurityContext, tokens, report)
	}
	for i := range pod.Containers {
		container(&pod.Containers[i], lasting, pod.SecurityContext, tokens, report)
	}
	return slices.Sorted(maps.Keys(found))
}

func container(c *corev1.Container, lasting Lasting, pod *corev1.PodSecurityContext, tokens map[string]bool, report func(string, ...any)) {
	security := c.SecurityContext
	if security == nil {
		security = &corev1.SecurityContext{}
	}
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	isTrue := func(value *bool) bool { return value != nil && *value }
	for name, on := range map[string]bool{
		"privileged":                        isTrue(security.Privileged),
		"may gain privileges":               security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation,
		"writable root":                     !isTrue(security.ReadOnlyRootFilesystem),
		"keeps capabilities":                security.Capabilities == nil || !slices.Contains(security.Capabilities.Drop, "ALL"),
		"other seccomp profile":             security.SeccompProfile != nil && unconfined(security.SeccompProfile),
		"unmasked /proc":                    security.ProcMount != nil && *security.ProcMount != corev1.DefaultProcMount,
		"may run as root":                   !nonRoot(security, pod),
		"no request of memory":              c.Resources.Requests.Memory().IsZero(),
		"no limit of memory":                c.Resources.Limits.Memory().IsZero(),
		"no liveness probe":                 bool(lasting) && c.LivenessProbe == nil,
		"no readiness probe":                bool(lasting) && c.ReadinessProbe == nil,
		"keys of a Secret as environment":   slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }),
		"a whole Secret as its environment": slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil }),
	} {
		if on {
			report("%s: %s", c.Name, name)
		}
	}
	if security.Capabilities != nil {
		for _, capability := range security.Capabilities.Add {
			report("%s: adds %s", c.Name, capability)
		}
	}
	for _, port := range c.Ports {
		if port.HostPort != 0 {
			report("%s: port %d of the host", c.Name, port.HostPort)
		}
	}
	for _, mount := range c.VolumeMounts {
		if tokens[mount.Name] || path.Clean(mount.MountPath) == tokenPath {
			report("%s: token", c.Name)
		}
		if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
			report("%s: mounts reach the host (%s)", c.Name, mount.MountPath)
		}
	}
}

func unconfined(profile *corev1.SeccompProfile) bool {
	return profile == nil || profile.Type != corev1.SeccompProfileTypeRuntimeDefault
}

// nonRoot reports whether the kubelet refuses to run a container as root; the container's own setting wins.
func nonRoot(security *corev1.SecurityContext, pod *corev1.PodSecurityContext) bool {
	must, user := pod.RunAsNonRoot, pod.RunAsUser
	if security.RunAsNonRoot != nil {
		must = security.RunAsNonRoot
	}
	if security.RunAsUser != nil {
		user = security.RunAsUser
	}
	return must != nil && *must && (user == nil || *user != 0)
}
