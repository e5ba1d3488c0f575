// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/metadata"
)

// longestRefusal bounds what a refusal repeats of the peer's own text.
const longestRefusal = 1500

// pieces returns ShadowPods as JSON, from which the fuzz targets assemble others: those that Check refuses and ordinary ones.
func pieces(f *testing.F) (all [][]byte) {
	f.Helper()
	add := func(shadow *vkv1alpha1.ShadowPod) {
		text, err := json.Marshal(shadow)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, text)
	}
	for _, c := range hostile {
		add(c.shadow)
	}
	for _, name := range slices.Sorted(maps.Keys(ordinary())) {
		add(ordinary()[name])
	}
	return all
}

// assemble lays the chosen pieces over each other, then a text of the fuzzer's own. Nothing if that is no ShadowPod.
func assemble(pieces [][]byte, chosen []byte, text string) *vkv1alpha1.ShadowPod {
	var shadow vkv1alpha1.ShadowPod
	for _, choice := range chosen[:min(len(chosen), 8)] {
		if json.Unmarshal(pieces[int(choice)%len(pieces)], &shadow) != nil {
			return nil
		}
	}
	if text != "" && (!parsable(text) || json.Unmarshal([]byte(text), &shadow) != nil) {
		return nil
	}
	return &shadow
}

// exponent matches numbers that take minutes to parse as a quantity. The API server refuses them before we see them: TestHostileQuantities in
// package webhook.
var exponent = regexp.MustCompile(`[0-9][eE][+-]?[0-9]{3,}`)

func parsable(text string) bool { return !exponent.MatchString(text) }

// FuzzBaseline: the standard admits every pod that we make of a ShadowPod that Check admits at the level baseline: the pod at first, and with the
// ephemeral containers that are added later. The only exception is SYS_PTRACE in ephemeral containers.
func FuzzBaseline(f *testing.F) {
	all := pieces(f)
	for i := range all {
		f.Add([]byte{byte(i)}, "")
		f.Add([]byte{byte(len(all) - 1), byte(i), byte(i / 2)}, `{"metadata":{"labels":{"`+labels.Origin+`":"rome-id"}},"spec":{"pod":{"hostUsers":false}}}`)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		f.Fatal(err)
	}
	// The newest standard, and the one before pods in user namespaces were treated differently.
	versions := []psa.Version{psa.LatestVersion(), psa.MajorMinorVersion(1, 34)}
	f.Fuzz(func(t *testing.T, chosen []byte, text string) {
		shadow := assemble(all, chosen, text)
		if shadow == nil {
			return
		}
		before := shadow.DeepCopy()
		problem := Check(shadow, "rome-id", Baseline)
		if !equality.Semantic.DeepEqual(before, shadow) {
			t.Fatal("Check changed the ShadowPod")
		}
		if len(problem) > longestRefusal || !utf8.ValidString(problem) {
			t.Fatalf("refusal of %d bytes: %q", len(problem), problem)
		}
		pod := Pod(shadow, "rome-id", anything)
		ownFields(t, pod)
		if problem != "" {
			return
		}
		if problem := Check(shadow, "rome-id", Privileged); problem != "" {
			t.Fatalf("admitted at baseline, but refused at privileged: %s", problem)
		}
		for _, version := range versions {
			evaluate := func(when string, pod *corev1.Pod) {
				results := evaluator.EvaluatePod(psa.LevelVersion{Level: psa.LevelBaseline, Version: version}, &pod.ObjectMeta, &pod.Spec)
				if result := policy.AggregateCheckResults(results); !result.Allowed && !newer(version, result.ForbiddenReasons) {
					t.Fatalf("%s: the standard %v refuses the pod: %s", when, version, result.ForbiddenDetail())
				}
			}
			evaluate("at first", pod)
			evaluate("later", amended(shadow, pod))
		}
	})
}

// newer returns whether an older version of the standard refuses only what it did not know yet.
func newer(version psa.Version, reasons []string) bool {
	return version != psa.LatestVersion() && !slices.ContainsFunc(reasons, func(name string) bool { return name != "forbidden sysctls" })
}

// amended returns the pod with the ephemeral containers of its ShadowPod, less SYS_PTRACE.
func amended(shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod) *corev1.Pod {
	later := pod.DeepCopy()
	later.Spec.EphemeralContainers = shadow.DeepCopy().Spec.Pod.EphemeralContainers
	for i := range later.Spec.EphemeralContainers {
		if context := later.Spec.EphemeralContainers[i].SecurityContext; context != nil && context.Capabilities != nil {
			context.Capabilities.Add = slices.DeleteFunc(context.Capabilities.Add, func(capability corev1.Capability) bool { return capability == "SYS_PTRACE" })
		}
	}
	return later
}

// ownFields holds for every pod that is made, whatever Check returned: the provider decides these fields.
func ownFields(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	s := &pod.Spec
	switch {
	case s.HostNetwork || s.HostPID || s.HostIPC:
		t.Fatal("the pod is in a namespace of the node")
	case s.ServiceAccountName != defaultAccount || s.DeprecatedServiceAccount != "" || s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken:
		t.Fatal("the pod has an identity of the provider's cluster")
	case s.NodeName != "" || s.SchedulerName != "" || s.PriorityClassName != "" ||
		s.Priority != nil || s.PreemptionPolicy != nil || s.RuntimeClassName != nil || s.Overhead != nil:
		t.Fatal("the peer decides where the pod runs or what it displaces")
	case len(s.EphemeralContainers) > 0:
		t.Fatal("the pod starts with ephemeral containers")
	case pod.Labels[labels.Origin] != "rome-id" || pod.Labels[labels.ManagedBy] != labels.ManagedByShadowPod:
		t.Fatalf("labels %v", pod.Labels)
	case len(pod.OwnerReferences) != 1 || len(pod.Finalizers) > 1:
		t.Fatalf("owners %v, finalizers %v", pod.OwnerReferences, pod.Finalizers)
	}
	for key, value := range pod.Annotations {
		if key != labels.ShadowPodRevision && key != labels.ShadowPodSent && (key != labels.ShadowPodKeys || value != givenKeys(pod)) && metadata.Reserved(key) {
			t.Fatalf("annotation %q is the peer's", key)
		}
	}
}

// BenchmarkCheck reports what each admission and each creation of a peer's pod costs.
func BenchmarkCheck(b *testing.B) {
	shadow := spec(func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{{Name: "setup"}}
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	for b.Loop() {
		if problem := Check(shadow, "rome-id", Baseline); problem != "" {
			b.Fatal(problem)
		}
	}
}
