// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest/single"
	"liqo.io/liqo/internal/offloading/metadata"
)

// applied returns a pod after a JSON patch, as an API server applies it.
func applied(t *testing.T, pod *corev1.Pod, ops []Op) *corev1.Pod {
	t.Helper()
	var tree any
	text, err := json.Marshal(pod)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		var value any
		if text, err := json.Marshal(op.Value); err != nil || json.Unmarshal(text, &value) != nil {
			t.Fatal(op)
		}
		var keys []string
		for _, key := range strings.Split(op.Path, "/")[1:] {
			keys = append(keys, strings.NewReplacer("~1", "/", "~0", "~").Replace(key))
		}
		if tree, err = edited(tree, keys, op.Op, value); err != nil {
			t.Fatalf("%v: %v", op, err)
		}
	}
	var after corev1.Pod
	if text, err = json.Marshal(tree); err != nil || json.Unmarshal(text, &after) != nil {
		t.Fatal(err)
	}
	return &after
}

func edited(tree any, keys []string, op string, value any) (any, error) {
	if len(keys) == 0 {
		if op == "test" && !reflect.DeepEqual(tree, value) {
			return nil, fmt.Errorf("%v is not %v", tree, value)
		}
		if op == "test" {
			return tree, nil
		}
		return value, nil
	}
	switch in := tree.(type) {
	case map[string]any:
		if op == "remove" && len(keys) == 1 {
			if _, ok := in[keys[0]]; !ok {
				return nil, fmt.Errorf("no %s", keys[0])
			}
			delete(in, keys[0])
			return in, nil
		}
		next, ok := in[keys[0]]
		if !ok && (len(keys) > 1 || op != "add") {
			return nil, fmt.Errorf("no %s", keys[0])
		}
		after, err := edited(next, keys[1:], op, value)
		in[keys[0]] = after
		return in, err
	case []any:
		if keys[0] == "-" {
			return append(in, value), nil
		}
		at, err := strconv.Atoi(keys[0])
		if err != nil || at >= len(in) {
			return nil, fmt.Errorf("no element %s", keys[0])
		}
		in[at], err = edited(in[at], keys[1:], op, value)
		return in, err
	}
	return nil, fmt.Errorf("nothing at %v", keys)
}

// has returns the fields of a living pod, by the names that they have in a record.
func has(pod *corev1.Pod) fields {
	as := &vkv1alpha1.ShadowPod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: vkv1alpha1.ShadowPodSpec{Pod: *pod.Spec.DeepCopy()}}
	return fieldsOf(as, "rome-id", everythingTolerated)
}

var everythingTolerated = metadata.Allowed{Labels: metadata.Keys{"*"}, Annotations: metadata.Keys{"*"}, Tolerations: metadata.Keys{"*"}}

// admissions are what a provider may do to each pod that is written, or only to new ones.
var admissions = []func(pod *corev1.Pod, isNew bool){
	func(pod *corev1.Pod, isNew bool) {
		for i := range pod.Spec.Containers {
			if container := &pod.Spec.Containers[i]; isNew && !strings.HasPrefix(container.Image, "mirror/") {
				container.Image = "mirror/" + container.Image
			}
		}
	},
	func(pod *corev1.Pod, isNew bool) {
		for i := range pod.Spec.InitContainers {
			if container := &pod.Spec.InitContainers[i]; !strings.HasPrefix(container.Image, "mirror/") {
				container.Image = "mirror/" + container.Image
			}
		}
	},
	func(pod *corev1.Pod, _ bool) { pod.Labels["a"], pod.Labels["team"] = "theirs", "theirs" },
	func(pod *corev1.Pod, _ bool) { delete(pod.Labels, "b") },
	func(pod *corev1.Pod, isNew bool) { pod.Annotations["injected"], pod.Annotations["d"] = "x", "theirs" },
	func(pod *corev1.Pod, isNew bool) {
		if isNew {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations[:0:0], corev1.Toleration{Key: "theirs", Operator: corev1.TolerationOpExists})
		}
	},
	func(pod *corev1.Pod, isNew bool) {
		if isNew {
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("700m")
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7Gi")}
		}
	},
	func(pod *corev1.Pod, isNew bool) {
		pod.Spec.Containers = append(
			slices.DeleteFunc(pod.Spec.Containers, func(container corev1.Container) bool { return container.Name == "sidecar" }),
			corev1.Container{Name: "sidecar", Image: "theirs"},
		)
	},
	func(pod *corev1.Pod, isNew bool) {
		if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil && *deadline > 500 {
			*deadline = 500
		}
	},
}

// changes are what a user may change in a pod, with the field that each changes.
var changes = map[string]func(*vkv1alpha1.ShadowPod, string){
	"label/a":      func(s *vkv1alpha1.ShadowPod, to string) { s.Labels["a"] = to },
	"label/b":      func(s *vkv1alpha1.ShadowPod, to string) { s.Labels["b"] = to },
	"label/c":      func(s *vkv1alpha1.ShadowPod, to string) { s.Labels["c"] = to },
	"annotation/d": func(s *vkv1alpha1.ShadowPod, to string) { s.Annotations["d"] = to },
	"annotation/e": func(s *vkv1alpha1.ShadowPod, to string) { s.Annotations["e"] = to },
	"image/main":   func(s *vkv1alpha1.ShadowPod, to string) { s.Spec.Pod.Containers[0].Image = "image:" + to },
	"image/first":  func(s *vkv1alpha1.ShadowPod, to string) { s.Spec.Pod.InitContainers[0].Image = "image:" + to },
	"amount/main/requests/cpu": func(s *vkv1alpha1.ShadowPod, to string) {
		s.Spec.Pod.Containers[0].Resources.Requests["cpu"] = resource.MustParse(to)
	},
	"amount/main/requests/memory": func(s *vkv1alpha1.ShadowPod, to string) {
		s.Spec.Pod.Containers[0].Resources.Requests["memory"] = resource.MustParse(to)
	},
}

func userPod() *vkv1alpha1.ShadowPod {
	return shadowPod(func(s *vkv1alpha1.ShadowPod) {
		s.Generation = 1
		s.Labels["a"], s.Labels["b"], s.Labels["c"] = "1", "1", "1"
		s.Annotations = map[string]string{"d": "1", "e": "1", labels.Fence: "fence"}
		s.Spec.Pod.ActiveDeadlineSeconds = new(int64(900))
		s.Spec.Pod.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}}
		s.Spec.Pod.InitContainers = []corev1.Container{{Name: "first", Image: "image:1"}}
		s.Spec.Pod.Containers = []corev1.Container{{Name: "main", Image: "image:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi"),
		}}}}
	})
}

// TestMutatingProvider: the admission of a provider changes pods, and a user changes them as well. Each change of the user arrives, what the provider
// did to other fields stays, and nothing is written twice. The same holds for pods that an earlier version of Liqo made.
func TestMutatingProvider(t *testing.T) {
	single.Goroutine(t)
	for seed := range int64(400) {
		random := rand.New(rand.NewSource(seed))
		var theirs []func(*corev1.Pod, bool)
		for _, name := range admissions {
			if random.Intn(2) == 0 {
				theirs = append(theirs, name)
			}
		}
		admit := func(pod *corev1.Pod, isNew bool) {
			for _, their := range theirs {
				their(pod, isNew)
			}
		}
		s, old := userPod(), random.Intn(3) == 0
		pod := Pod(s, "rome-id", everythingTolerated)
		pod.UID = "pod"
		admit(pod, true)
		if old {
			delete(pod.Annotations, labels.ShadowPodSent)
		}
		for step := range 12 {
			name := slices.Sorted(maps.Keys(changes))[random.Intn(len(changes))]
			if sent := fieldsOf(s, "rome-id", everythingTolerated); old && (has(pod)[name] != sent[name] || strings.HasPrefix(name, amountField)) {
				continue // what an earlier version sent is not known, nor any amount
			}
			before := s.DeepCopy()
			if changes[name](s, strconv.Itoa(2+random.Intn(3))); !reflect.DeepEqual(before.Spec, s.Spec) {
				s.Generation++
			}
			old = old && reflect.DeepEqual(before, s) // the record is written with the first change
			want := fieldsOf(s, "rome-id", everythingTolerated)
			patches := Amend(s, pod, "rome-id", "us", everythingTolerated)
			after := applied(t, applied(t, pod, patches.Resize), patches.Rest)
			was, is := has(pod), has(after)
			for field := range want {
				if field == name && is[field] != want[field] && fieldsOf(before, "rome-id", everythingTolerated)[field] != want[field] {
					t.Fatalf("seed %d, step %d: %s does not arrive: %q, want %q", seed, step, name, is[field], want[field])
				}
			}
			for field := range maps.All(was) {
				if field != name && was[field] != is[field] {
					t.Fatalf("seed %d, step %d: a change of %s takes %s back from %q to %q", seed, step, name, field, was[field], is[field])
				}
			}
			for field := range is {
				if _, ok := was[field]; !ok && field != name {
					t.Fatalf("seed %d, step %d: a change of %s adds %s", seed, step, name, field)
				}
			}
			admit(after, false)
			if again := Amend(s, after, "rome-id", "us", everythingTolerated); again.Rest != nil || again.Resize != nil || again.Ephemeral != nil {
				t.Fatalf("seed %d, step %d: %s is written again: %v", seed, step, name, again)
			}
			pod = after
		}
	}
}

// TestRefusedResize: while a provider refuses a resize, what else has changed is sent once, and the resize is asked for again.
func TestRefusedResize(t *testing.T) {
	s := userPod()
	pod := Pod(s, "rome-id", anything)
	pod.UID = "pod"
	pod.Spec.Containers[0].Image = "mirror/image:1"
	s.Generation++
	s.Labels["a"] = "2"
	s.Spec.Pod.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2")
	first := Amend(s, pod, "rome-id", "us", anything)
	pod = applied(t, pod, first.Unrecorded)
	if pod.Labels["a"] != "2" || pod.Spec.Containers[0].Image != "mirror/image:1" || pod.Annotations[labels.ShadowPodRevision] == Revision(s) {
		t.Errorf("sent without the resize: %v", first.Unrecorded)
	}
	pod.Labels["a"] = "theirs" // their admission is late
	second := Amend(s, pod, "rome-id", "us", anything)
	if second.Unrecorded != nil || len(second.Resize) != 3 {
		t.Errorf("again: %v and %v", second.Unrecorded, second.Resize)
	}
	pod = applied(t, applied(t, pod, second.Resize), second.Rest)
	if third := Amend(s, pod, "rome-id", "us", anything); pod.Labels["a"] != "theirs" || third.Rest != nil ||
		third.Resize != nil || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("in the end: %v, %v", pod.Labels, third)
	}
}

// TestRecord: a record is small, and one that does not fit to the pod is none.
func TestRecord(t *testing.T) {
	s := userPod()
	pod := Pod(s, "rome-id", anything)
	if text := pod.Annotations[labels.ShadowPodSent]; len(text) == 0 || len(text) > 256 {
		t.Errorf("the record of a usual pod has %d bytes: %s", len(text), text)
	}
	if read := readRecord(pod); !read.sent("image/main", "image:1") || read.sent("image/main", "image:2") || read.sent("image/other", "") {
		t.Errorf("read: %v", read)
	}
	for name, change := range map[string]func(){
		"none":                func() { delete(pod.Annotations, labels.ShadowPodSent) },
		"of another revision": func() { pod.Annotations[labels.ShadowPodRevision] = "shadow/0123456789abcdef" },
		"too short":           func() { pod.Annotations[labels.ShadowPodSent] = "AAAA" },
		"cut":                 func() { pod.Annotations[labels.ShadowPodSent] = pod.Annotations[labels.ShadowPodSent][:40] },
		"no record":           func() { pod.Annotations[labels.ShadowPodSent] = "$$$" },
	} {
		pod = Pod(s, "rome-id", anything)
		if change(); readRecord(pod) != nil {
			t.Errorf("%s: it is read", name)
		}
	}
	for i := range maxFields {
		s.Labels["key"+strconv.Itoa(i)] = "x"
	}
	if text := Pod(s, "rome-id", anything).Annotations[labels.ShadowPodSent]; text != "" {
		t.Errorf("the record of a pod with very many labels has %d bytes", len(text))
	}
}

// TestAttackH6PodMetadata: a peer gives no orders to components of the provider's cluster with the metadata and tolerations of its pods, neither
// at first nor later. What honest tools set stays, and the administrator can allow more.
func TestAttackH6PodMetadata(t *testing.T) {
	s := spec(func(s *corev1.PodSpec) {
		for _, key := range []string{
			"", "CriticalAddonsOnly", "dedicated", "nvidia.com/gpu", "node-role.kubernetes.io/control-plane", corev1.TaintNodeMemoryPressure,
			corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable,
		} {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
	})
	s.Labels, s.Annotations = map[string]string{labels.Origin: "rome-id"}, map[string]string{}
	for _, key := range slices.Concat(orders, honest) {
		s.Labels[key] = "x"
	}
	for _, key := range slices.Concat(orders, honestNotes) {
		s.Annotations[key] = "x"
	}
	wantLabels := slices.Sorted(slices.Values(slices.Concat(honest, []string{labels.Origin, labels.ManagedBy})))
	wantNotes := slices.Sorted(slices.Values(slices.Concat(honestNotes, []string{labels.ShadowPodRevision, labels.ShadowPodKeys, labels.ShadowPodSent})))
	check := func(when string, pod *corev1.Pod) {
		t.Helper()
		if diff := cmp.Diff(wantLabels, slices.Sorted(maps.Keys(pod.Labels))); diff != "" {
			t.Errorf("%s: labels %s", when, diff)
		}
		if diff := cmp.Diff(wantNotes, slices.Sorted(maps.Keys(pod.Annotations))); diff != "" {
			t.Errorf("%s: annotations %s", when, diff)
		}
	}
	pod := Pod(s, "rome-id", metadata.Allowed{})
	check("at first", pod)
	tolerated := func(tolerations []corev1.Toleration) (keys []string) {
		for _, toleration := range tolerations {
			keys = append(keys, toleration.Key)
		}
		return keys
	}
	if diff := cmp.Diff([]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}, tolerated(pod.Spec.Tolerations)); diff != "" {
		t.Errorf("tolerations %s", diff)
	}
	bare := Pod(spec(func(*corev1.PodSpec) {}), "rome-id", metadata.Allowed{})
	bare.Labels, bare.Annotations = map[string]string{}, map[string]string{labels.ShadowPodKeys: ";"}
	rest := Amend(s, bare, "rome-id", "us", metadata.Allowed{}).Rest
	for _, op := range rest {
		value, _ := op.Value.(string)
		if key, ok := strings.CutPrefix(op.Path, "/metadata/labels/"); ok {
			bare.Labels[unescape.Replace(key)] = value
		}
		if key, ok := strings.CutPrefix(op.Path, "/metadata/annotations/"); ok {
			bare.Annotations[unescape.Replace(key)] = value
		}
	}
	check("later", bare)

	allowed := metadata.Allowed{Labels: metadata.Keys{"istio.io/rev"}, Annotations: metadata.Keys{"vault.hashicorp.com/*"}, Tolerations: metadata.Keys{"*"}}
	more := Pod(s, "rome-id", allowed)
	if more.Labels["istio.io/rev"] == "" || more.Annotations["istio.io/rev"] != "" || more.Annotations["vault.hashicorp.com/agent-inject"] == "" {
		t.Errorf("extended: %v, %v", more.Labels, more.Annotations)
	}
	if diff := cmp.Diff([]string{
		"CriticalAddonsOnly", "dedicated", "nvidia.com/gpu", corev1.TaintNodeMemoryPressure, corev1.TaintNodeNotReady,
		corev1.TaintNodeUnreachable,
	}, tolerated(more.Spec.Tolerations)); diff != "" {
		t.Errorf("extended: tolerations %s", diff)
	}
}

// TestLeftOut: the peer learns what its pod runs without.
func TestLeftOut(t *testing.T) {
	s := spec(func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "gpu"}, {Key: "gpu"}, {}, {Key: "node-role.kubernetes.io/control-plane"}, {Key: corev1.TaintNodeNotReady}}
	})
	s.Labels["istio.io/rev"], s.Labels["a/b"] = "x", "x"
	s.Annotations = map[string]string{"linkerd.io/inject": "x", "note": "x", corev1.LastAppliedConfigAnnotation: "x"}
	if diff := cmp.Diff([]string{
		"annotation linkerd.io/inject", "label a/b", "label istio.io/rev", "toleration of gpu",
	}, metadata.LeftOut(s, metadata.Allowed{})); diff != "" {
		t.Error(diff)
	}
	if left := metadata.LeftOut(s, anything); len(left) > 0 {
		t.Errorf("with everything allowed: %v", left)
	}
	if left := metadata.LeftOut(shadowPod(nil), metadata.Allowed{}); len(left) > 0 {
		t.Errorf("of an ordinary pod: %v", left)
	}
}

// Keys that common components of a cluster obey, and that honest tools of users set.
var (
	orders = []string{
		"sidecar.istio.io/inject", "istio.io/rev", "linkerd.io/inject", "vault.hashicorp.com/agent-inject", "azure.workload.identity/use",
		"karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict", "io.katacontainers.config.hypervisor.path/x",
		"kueue.x-k8s.io/queue-name", "admission.datadoghq.com/enabled", "kuma.io/sidecar-injection", "prometheus.io/scrape",
		"discovery.liqo.io/cluster-id", "auth.liqo.io/pinned-key", "xliqo.io/a", "app.kubernetes.io.example.com/name", "/", "kubernetes.io/config.source",
	}
	honest = []string{
		"app", "team_name", "pod-template-hash", "controller-revision-hash", "job-name", "app.kubernetes.io/name", "helm.sh/chart",
		"batch.kubernetes.io/job-name", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "virtualkubelet.liqo.io/destination",
	}
	honestNotes = []string{
		"note", "kubectl.kubernetes.io/restartedAt", "kubectl.kubernetes.io/default-container", "checksum/config", "liqo.io/anti-affinity-preset",
		"batch.kubernetes.io/job-completion-index", "virtualkubelet.liqo.io/fence", "controller.kubernetes.io/pod-deletion-cost",
	}
)

// unescape is the inverse of pointer.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")
