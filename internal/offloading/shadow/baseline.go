// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/offloading/metadata"
)

// Level is how much of a node the pods of peers may reach.
type Level string

// The levels. Pod Security Admission additionally enforces the labels of a namespace.
const (
	// Baseline is the Pod Security Standard of that name, without volumes that a node mounts over its own network.
	Baseline Level = "baseline"
	// Restricted is the Pod Security Standard of that name, with the further rules of Baseline.
	Restricted Level = "restricted"
	// Privileged admits everything that Check does not forbid at every level: the provider trusts peers with its nodes.
	Privileged Level = "privileged"
)

// standard evaluates pods against the Pod Security Standards. It is built on first use: most roles never check a pod.
var standard = sync.OnceValue(func() policy.Evaluator {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // the library's own checks
	}
	return evaluator
})

// Levels are the levels from the strictest to the loosest.
var Levels = []Level{Restricted, Baseline, Privileged}

// checkStandard returns why the level Baseline or Restricted forbids a pod; nothing if it admits the pod.
func checkStandard(shadow *vkv1alpha1.ShadowPod, level Level) string {
	latest := psa.LevelVersion{Level: psa.Level(level), Version: psa.LatestVersion()} // the newest version that the library knows
	for key := range shadow.Annotations {
		if given := metadata.Reach(key); given != "" {
			return fmt.Sprintf("annotation %.253s asks for %s", key, given)
		}
	}
	result := policy.AggregateCheckResults(standard().EvaluatePod(latest, &shadow.ObjectMeta, evaluated(&shadow.Spec.Pod, level)))
	if !result.Allowed {
		return "spec.pod: " + printable.Line(result.ForbiddenDetail(), 600)
	}
	return networkVolumes(shadow.Spec.Pod.Volumes)
}

// evaluated returns the copy of a pod's spec that the standard evaluates. It differs in two fields.
//
// The standard relaxes rules for pods in user namespaces. We do not: an API server without user namespaces drops hostUsers, and keeps what was
// admitted for its sake.
//
// Ephemeral containers may ask for SYS_PTRACE, as those of `kubectl debug` do by default: they run without it. The level Restricted has no exception.
func evaluated(spec *corev1.PodSpec, level Level) *corev1.PodSpec {
	it := *spec
	it.HostUsers = nil
	if level == Restricted {
		return &it
	}
	it.EphemeralContainers = slices.Clone(spec.EphemeralContainers)
	for i := range it.EphemeralContainers {
		it.EphemeralContainers[i].SecurityContext = withoutTrace(it.EphemeralContainers[i].SecurityContext)
	}
	return &it
}

// networkVolumes is stricter than the baseline, and as strict as the level above it. A node mounts network volumes under its own identity, so a
// file server that trusts the nodes of this cluster would give a peer everyone's volumes. A driver that a pod names does what the peer asks of it.
func networkVolumes(volumes []corev1.Volume) string {
	for i := range volumes {
		other := volumes[i].VolumeSource
		other.ConfigMap, other.Secret, other.DownwardAPI, other.Projected, other.EmptyDir = nil, nil, nil, nil, nil
		other.PersistentVolumeClaim, other.Ephemeral, other.Image = nil, nil, nil
		if other != (corev1.VolumeSource{}) {
			return fmt.Sprintf("spec.pod.volumes[%d] (%.63q) is of a kind that the node mounts with its own identity; use a claim", i, volumes[i].Name)
		}
	}
	return ""
}
