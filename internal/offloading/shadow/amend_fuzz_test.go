// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// FuzzAmend: an admitted update changes only what the rules name, in the pod that is made and in the patch of a live one.
func FuzzAmend(f *testing.F) {
	all := pieces(f)
	first, last := []byte{byte(len(all) - 1)}, `{"metadata":{"uid":"shadow","labels":{"`+labels.Origin+`":"rome-id"}}}`
	for _, change := range []string{
		`{}`, `{"spec":{"pod":{"containers":[{"image":"new"}]}}}`, `{"spec":{"pod":{"containers":[{"resources":{"limits":{"cpu":"3"}}}]}}}`,
		`{"spec":{"pod":{"activeDeadlineSeconds":5}}}`,
		`{"metadata":{"labels":{"a":"b","` + labels.ManagedBy +
			`":"peer"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x","` + labels.ShadowPodRevision + `":"x","a/b~c":"d"}}}`,
		`{"spec":{"pod":{"tolerations":[{"key":"a"},{"operator":"Exists"},{"key":"node-role.kubernetes.io/control-plane"}]}}}`,
		`{"spec":{"pod":{"ephemeralContainers":[{"name":"debugger","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}}}`,
		`{"spec":{"pod":{"ephemeralContainers":[{"name":"debugger","securityContext":{"privileged":true}}]}}}`,
		`{"spec":{"pod":{"containers":[{"image":"new","securityContext":{"privileged":true}}]}}}`, `{"spec":{"fence":"x"}}`,
		`{"spec":{"pod":{"volumes":[{"name":"v","emptyDir":{}}]}}}`, `{"spec":{"pod":{"containers":[{"command":["sh"]}]}}}`,
	} {
		f.Add(first, last, change)
	}
	f.Fuzz(func(t *testing.T, chosen []byte, text, change string) {
		before := assemble(all, chosen, text)
		if before == nil || !parsable(change) {
			return
		}
		after := before.DeepCopy()
		if json.Unmarshal([]byte(change), after) != nil || Check(before, "rome-id", Baseline) != "" {
			return
		}
		kept, keptAfter := before.DeepCopy(), after.DeepCopy()
		problem := CheckUpdate(before, after)
		if !equality.Semantic.DeepEqual(kept, before) || !equality.Semantic.DeepEqual(keptAfter, after) {
			t.Fatal("CheckUpdate changed its arguments")
		}
		if len(problem) > longestRefusal || !utf8.ValidString(problem) {
			t.Fatalf("refusal %q", problem)
		}
		if problem != "" || Check(after, "rome-id", Baseline) != "" {
			return
		}
		was, is := Pod(before, "rome-id", anything), Pod(after, "rome-id", anything)
		checkPatch(t, after, was)
		if distinct(&after.Spec.Pod) {
			if patches := Amend(after, is, "rome-id", "us", anything); len(patches.Ephemeral) > len(after.Spec.Pod.EphemeralContainers)+1 ||
				len(patches.Rest) > 3 || patches.Resize != nil {
				t.Fatalf("the pod as it is made is patched: %v", patches)
			}
		}
		for i := range is.Spec.Containers {
			is.Spec.Containers[i].Image = was.Spec.Containers[i].Image
			restore(&was.Spec.Containers[i].Resources, &is.Spec.Containers[i].Resources)
		}
		for i := range is.Spec.InitContainers {
			is.Spec.InitContainers[i].Image = was.Spec.InitContainers[i].Image
			restore(&was.Spec.InitContainers[i].Resources, &is.Spec.InitContainers[i].Resources)
		}
		if is.Spec.Resources != nil && was.Spec.Resources != nil {
			restore(was.Spec.Resources, is.Spec.Resources)
		}
		is.Spec.ActiveDeadlineSeconds, is.Spec.Tolerations = was.Spec.ActiveDeadlineSeconds, was.Spec.Tolerations
		if !equality.Semantic.DeepEqual(is.Spec, was.Spec) {
			t.Fatalf("the update was admitted and changes the pod:\n%+v\n%+v", was.Spec, is.Spec)
		}
	})
}

// distinct returns whether no two containers of the pod have the same name; the API server takes no others.
func distinct(spec *corev1.PodSpec) bool {
	names := map[string]bool{}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if names[containers[i].Name] {
				return false
			}
			names[containers[i].Name] = true
		}
	}
	return true
}

// checkPatch holds the patch of a live pod to the fields that may change, and to the provider's values of its own labels and annotations.
func checkPatch(t *testing.T, shadow *vkv1alpha1.ShadowPod, pod *corev1.Pod) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.UID = "pod"
	patches := Amend(shadow, pod, "rome-id", "us", anything)
	for _, ops := range [][]Op{patches.Ephemeral, patches.Rest, patches.Unrecorded, patches.Resize} {
		if len(ops) > 0 && (ops[0].Op != "test" || ops[0].Path != "/metadata/uid" || ops[0].Value != "pod") {
			t.Fatalf("a patch for any pod: %v", ops)
		}
		for _, op := range ops[min(len(ops), 1):] {
			if path, _, ok := strings.Cut(op.Path, "/resources"); ok && len(patches.Resize) > 0 && (strings.Contains(path, "ontainers/") || path == "/spec") {
				continue
			}
			allowed := []string{
				"/metadata/labels", "/metadata/annotations", "/spec/containers/", "/spec/initContainers/", "/spec/activeDeadlineSeconds",
				"/spec/tolerations", "/spec/ephemeralContainers",
			}
			if !slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(op.Path, prefix) }) {
				t.Fatalf("a patch of %s", op.Path)
			}
			if strings.Contains(op.Path, "ontainers/") && !strings.HasSuffix(op.Path, "/image") &&
				!strings.HasSuffix(op.Path, "/name") && op.Path != "/spec/ephemeralContainers/-" {
				t.Fatalf("a patch of %s", op.Path)
			}
			if key, ok := strings.CutPrefix(op.Path, "/metadata/"); ok && op.Op != "remove" {
				for name, value := range map[string]string{
					"labels/" + pointer(labels.Origin): "rome-id", "labels/" + pointer(labels.ManagedBy): labels.ManagedByShadowPod,
					"annotations/" + pointer(labels.ShadowPodRevision): Revision(shadow),
				} {
					if key == name && op.Value != value {
						t.Fatalf("the peer sets %s to %v", key, op.Value)
					}
				}
			}
			for _, toleration := range tolerationsOf(op) {
				if len(tolerations([]corev1.Toleration{toleration}, anything)) == 0 {
					t.Fatalf("the patch adds the toleration %v", toleration)
				}
			}
		}
	}
}

func tolerationsOf(op Op) (all []corev1.Toleration) {
	values, ok := op.Value.([]any)
	if !ok {
		values = []any{op.Value}
	}
	for _, value := range values {
		if toleration, ok := value.(corev1.Toleration); ok {
			all = append(all, toleration)
		}
	}
	return all
}
