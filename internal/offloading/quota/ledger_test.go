// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadow"
)

// testDefaults are those of the chart.
var testDefaults = Defaults{Requests: list("cpu", "10m", "memory", "32Mi"), Limits: list("ephemeral-storage", "1Gi"), MemoryVolume: resource.MustParse("64Mi")}

func shadowPod(change func(*vkv1alpha1.ShadowPod)) *vkv1alpha1.ShadowPod {
	s := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: "web", UID: "shadow", Labels: map[string]string{labels.Origin: "rome-id"}},
		Spec:       vkv1alpha1.ShadowPodSpec{Fence: "fence", Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func list(pairs ...string) corev1.ResourceList {
	made := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		made[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return made
}

func limited(name string, pairs ...string) *vkv1alpha1.ShadowPod {
	return shadowPod(func(s *vkv1alpha1.ShadowPod) {
		s.Name, s.UID = name, types.UID(name)
		s.Spec.Pod.Containers[0].Resources.Limits = list(pairs...)
	})
}

var slice = types.NamespacedName{Namespace: "liqo-tenant-rome", Name: "rome"}

func TestLedger(t *testing.T) {
	now := time.Unix(0, 0)
	l := NewLedger(true, Defaults{})
	l.SetGrant("rome-id", slice, list("cpu", "2", "memory", "1Gi", "pods", "3"))
	admit := func(s *vkv1alpha1.ShadowPod, want string) {
		t.Helper()
		if problem := l.Admit("rome-id", s, now, false); (problem == "") != (want == "") || !strings.Contains(problem, want) {
			t.Errorf("%s: %q, want %q", s.Name, problem, want)
		}
	}
	admit(shadowPod(nil), "limits for cpu and memory")
	admit(limited("no-memory", "cpu", "1"), "no limit for memory")
	admit(limited("zero", "cpu", "0", "memory", "1"), "no limit for cpu")
	admit(limited("device", "cpu", "1", "memory", "1", "nvidia.com/gpu", "1"), "nvidia.com/gpu")
	admit(limited("huge", "cpu", "1e30", "memory", "1"), "cpu")
	admit(limited("a", "cpu", "1", "memory", "512Mi"), "")
	admit(limited("a", "cpu", "1", "memory", "512Mi"), "") // admitted again after another webhook refused it
	if l.Admit("rome-id", limited("only-asked", "cpu", "1", "memory", "1"), now, true) != "" {
		t.Error("a dry run is refused although the resources are free")
	}
	admit(limited("b", "cpu", "1", "memory", "512Mi"), "")
	admit(limited("c", "cpu", "1m", "memory", "1"), "1m of cpu; 2 of 2 granted to cluster rome-id")
	l.Set("rome-id", limited("a", "cpu", "1", "memory", "512Mi"))
	admit(limited("c", "cpu", "1m", "memory", "1"), "2 of 2")

	// b was admitted and never observed; its reservation expires.
	now = now.Add(2 * admittedFor)
	admit(limited("c", "cpu", "1", "memory", "1"), "")
	ended := limited("a", "cpu", "1", "memory", "512Mi")
	ended.Status.Phase = vkv1alpha1.ShadowPodSucceeded
	l.Set("rome-id", ended)
	admit(limited("d", "cpu", "500m", "memory", "1"), "")
	admit(limited("e", "cpu", "100m", "memory", "1"), "")
	admit(limited("f", "cpu", "100m", "memory", "1"), "pods")

	// The event of a deletion arrives after another ShadowPod has taken the name.
	again := limited("c", "cpu", "1", "memory", "1")
	l.Set("rome-id", again)
	second := limited("c", "cpu", "1", "memory", "1")
	second.UID = "second"
	admit(second, "")
	l.Delete(again)
	l.Set("rome-id", second)
	admit(limited("g", "cpu", "1", "memory", "1"), "cpu")

	// Its pod keeps the size that it was created with, whatever the ShadowPod requests later.
	shrunk := limited("c", "cpu", "1m", "memory", "1")
	shrunk.UID, shrunk.DeletionTimestamp = "second", &metav1.Time{Time: now}
	l.Set("rome-id", shrunk)
	admit(limited("g", "cpu", "1", "memory", "1"), "cpu")

	// Another peer has no grant, and the grant shrinks.
	if l.Admit("milan-id", limited("x", "cpu", "1m", "memory", "1"), now, false) == "" {
		t.Error("admitted without a grant")
	}
	l.DropGrant(slice)
	admit(limited("g", "cpu", "1m", "memory", "1"), "granted")
}

// TestLedgerAddsUp: after any history, the sums are those of the recorded pods.
func TestLedgerAddsUp(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	l := NewLedger(true, Defaults{})
	l.SetGrant("rome-id", slice, list("cpu", "20", "memory", "1Gi", "pods", "30"))
	there := map[string]*vkv1alpha1.ShadowPod{}
	now := time.Unix(0, 0)
	for i := range 20000 {
		name := fmt.Sprint("pod", random.Intn(30))
		s := limited(name, "cpu", fmt.Sprint(1+random.Intn(3)), "memory", "1Mi")
		s.UID = types.UID(fmt.Sprint(i))
		switch random.Intn(3) {
		case 0:
			if there[name] == nil && l.Admit("rome-id", s, now, false) == "" && random.Intn(4) > 0 {
				there[name] = s
				l.Set("rome-id", s)
			}
		case 1:
			if there[name] != nil {
				l.Delete(there[name])
				delete(there, name)
			}
		case 2:
			now = now.Add(time.Second)
		}
		sum := int64(0)
		for _, s := range there {
			sum += s.Spec.Pod.Containers[0].Resources.Limits.Cpu().MilliValue()
		}
		if sum > 20000 {
			t.Fatalf("%d are used of 20000", sum)
		}
	}
	for _, s := range there {
		l.Delete(s)
	}
	l.Admit("rome-id", limited("last", "cpu", "1", "memory", "1"), now.Add(time.Hour), true)
	if len(l.used)+len(l.seen)+len(l.admitted) > 0 {
		t.Errorf("left: %v", l.used)
	}
}

// TestLimits: the larger of the sum over containers and the pod-level resources counts. Kubernetes reserves the pod-level requests, and lets
// the pod use the pod-level limits.
func TestLimits(t *testing.T) {
	for what, test := range map[string]struct {
		whole *corev1.ResourceRequirements
		want  Amounts
	}{
		"nothing": {nil, Amounts{"cpu": 1000, "memory": 1 << 20, "pods": 1}},
		"less": {
			&corev1.ResourceRequirements{Limits: list("cpu", "500m"), Requests: list("cpu", "100m")},
			Amounts{"cpu": 1000, "memory": 1 << 20, "pods": 1},
		},
		"higher limits": {
			&corev1.ResourceRequirements{Limits: list("cpu", "8", "hugepages-2Mi", "4Mi")},
			Amounts{"cpu": 8000, "memory": 1 << 20, "hugepages-2Mi": 4 << 20, "pods": 1},
		},
		"requests only": {&corev1.ResourceRequirements{Requests: list("memory", "1Gi")}, Amounts{"cpu": 1000, "memory": 1 << 30, "pods": 1}},
		"some of each": {
			&corev1.ResourceRequirements{Limits: list("cpu", "2", "memory", "1"), Requests: list("cpu", "1", "memory", "2Mi")},
			Amounts{"cpu": 2000, "memory": 2 << 20, "pods": 1},
		},
	} {
		s := limited("a", "cpu", "1", "memory", "1Mi")
		s.Spec.Pod.Resources = test.whole
		trimmed := s.DeepCopy()
		shadow.Trim(trimmed)
		for _, pod := range []*vkv1alpha1.ShadowPod{s, trimmed} {
			if got := limits(&pod.Spec.Pod); !maps.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", what, got, test.want)
			}
		}
	}
}

// TestAttackH7: a peer that schedules more than it is granted, in every way that Kubernetes has to request a resource.
func TestAttackH7(t *testing.T) {
	now := time.Unix(0, 0)
	granted := list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "example.com/gpu", "1", "hugepages-2Mi", "4Mi", "pods", "3")
	type resources = corev1.ResourceRequirements
	pod := func(name string, of resources, more ...func(*corev1.PodSpec)) *vkv1alpha1.ShadowPod {
		return shadowPod(func(s *vkv1alpha1.ShadowPod) {
			s.Name, s.UID, s.Spec.Pod.Containers[0].Resources = name, types.UID(name), of
			for _, change := range more {
				change(&s.Spec.Pod)
			}
		})
	}
	always := corev1.ContainerRestartPolicyAlways
	for what, test := range map[string]struct {
		of   resources
		more func(*corev1.PodSpec)
		want string
	}{
		"cpu": {
			of:   resources{Requests: list("cpu", "1001m")},
			want: "the requests of this pod ask for 1001m of cpu; 1 of 2 granted to cluster rome-id are in use",
		},
		"memory":            {of: resources{Requests: list("memory", "513Mi")}, want: "513Mi of memory; 512Mi of 1Gi"},
		"ephemeral storage": {of: resources{Requests: list("ephemeral-storage", "11Gi")}, want: "11Gi of ephemeral-storage; 1Gi of 10Gi"},
		"a device":          {of: resources{Requests: list("example.com/gpu", "2")}, want: "2 of example.com/gpu; 0 of 1"},
		"huge pages":        {of: resources{Requests: list("hugepages-2Mi", "6Mi")}, want: "hugepages-2Mi; 0 of"},
		"another device":    {of: resources{Requests: list("example.com/other", "1")}, want: "1 of example.com/other; 0 of 0"},
		"only a limit":      {of: resources{Limits: list("cpu", "2")}, want: "2 of cpu; 1 of 2"}, // the API server makes it the request
		"limits of the pod": {more: func(spec *corev1.PodSpec) { spec.Resources = &resources{Limits: list("cpu", "2")} }, want: "2 of cpu"},
		"requests of the pod": {
			of: resources{Requests: list("cpu", "1m")}, more: func(spec *corev1.PodSpec) { spec.Resources = &resources{Requests: list("cpu", "2")} }, want: "2 of cpu",
		},
		"an init container": {more: func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "i", Resources: resources{Requests: list("cpu", "2")}}}
		}, want: "2 of cpu"},
		"a sidecar": {of: resources{Requests: list("cpu", "600m")}, more: func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: &always, Resources: resources{Requests: list("cpu", "600m")}}}
		}, want: "1200m of cpu"},
		"nothing beside all that is left": {of: resources{Requests: list("cpu", "1")}, more: func(spec *corev1.PodSpec) {
			spec.Containers = append(spec.Containers, corev1.Container{Name: "nothing"})
		}, want: "1010m of cpu (each container counts with 10m at least); 1 of 2"},
		"limits of ephemeral storage": {
			of:   resources{Requests: list("ephemeral-storage", "0"), Limits: list("ephemeral-storage", "10Gi")},
			want: "10Gi of ephemeral-storage (the limit of each container counts",
		},
		"so much that sums overflow": {of: resources{Requests: list("cpu", "1e30", "memory", "1e30")}, want: "of cpu"},

		"as much as is left": {of: resources{Requests: list("cpu", "1", "memory", "512Mi", "ephemeral-storage", "9Gi", "example.com/gpu", "1")}},
		// The scheduler ignores limits, except for those of storage.
		"higher limits": {of: resources{Requests: list("cpu", "1m"), Limits: list("cpu", "100", "memory", "512Mi")}},
		"limits beside others": {
			of: resources{Requests: list("cpu", "1")}, more: func(spec *corev1.PodSpec) { spec.Resources = &resources{Limits: list("cpu", "100")} },
		},
		"nothing": {},
	} {
		l := NewLedger(false, testDefaults)
		l.SetGrant("rome-id", slice, granted)
		first := pod("first", resources{Requests: list("cpu", "1", "memory", "512Mi")})
		if problem := l.Admit("rome-id", first, now, false); problem != "" {
			t.Fatalf("%s: the first pod is refused: %s", what, problem)
		}
		shadow.Trim(first)
		l.Set("rome-id", first)
		second := pod("second", test.of)
		if test.more != nil {
			test.more(&second.Spec.Pod)
		}
		if problem := l.Admit("rome-id", second, now, false); (problem == "") != (test.want == "") || !strings.Contains(problem, test.want) {
			t.Errorf("%s: %q, want %q", what, problem, test.want)
		}
	}

	// Pods without requests are bounded by their number, too.
	for what, grant := range map[string]corev1.ResourceList{
		"3": granted, "0": list("cpu", "1", "memory", "1Gi", "pods", "0"), "no": list("cpu", "1", "memory", "1Gi"),
	} {
		l := NewLedger(false, testDefaults)
		l.SetGrant("rome-id", slice, grant)
		admitted, most := 0, int(count(grant, maxGrant)["pods"])
		for i := range 10 {
			if l.Admit("rome-id", pod(fmt.Sprint("idle", i), resources{}), now, false) == "" {
				admitted++
			}
		}
		if admitted != most {
			t.Errorf("a grant of %s pods: %d pods without requests are admitted", what, admitted)
		}
	}
}

// TestAttackResize: with a grant of three CPUs, a peer gets no more by changing the size of its pods, whatever it asks for in between.
func TestAttackResize(t *testing.T) {
	l := NewLedger(true, Defaults{})
	l.SetGrant("rome-id", slice, list("cpu", "3", "memory", "1Gi", "pods", "9"))
	a, b := limited("a", "cpu", "1", "memory", "1"), limited("b", "cpu", "1", "memory", "1")
	l.Set("rome-id", a)
	l.Set("rome-id", b)
	a.Spec.Pod.Containers[0].Resources.Limits = list("cpu", "2", "memory", "1")
	b.Spec.Pod.Containers[0].Resources.Limits = list("cpu", "2", "memory", "1")
	if problem := l.Grow("rome-id", a); problem != "" {
		t.Errorf("refused within the grant: %s", problem)
	}
	l.Set("rome-id", a)
	if problem := l.Grow("rome-id", b); !strings.Contains(problem, "2 of cpu in place of 1, and 3 of 3 granted") {
		t.Errorf("beyond the grant: %q", problem)
	}
	// A pod that was made smaller may still use what it had, so it counts with that.
	a.Spec.Pod.Containers[0].Resources.Limits = list("cpu", "1", "memory", "1")
	l.Set("rome-id", a)
	if l.Grow("rome-id", a) != "" || l.Grow("rome-id", b) == "" || l.Admit("rome-id", limited("c", "cpu", "1", "memory", "1"), time.Unix(0, 0), true) == "" {
		t.Error("what a smaller pod had is granted to another one")
	}
	// After a restart, it is not known whether the pods have the sizes that they ask for: together they exceed the grant, so none gets more.
	again := NewLedger(true, Defaults{})
	again.SetGrant("rome-id", slice, list("cpu", "3", "memory", "1Gi", "pods", "9"))
	for _, pod := range []*vkv1alpha1.ShadowPod{b, limited("d", "cpu", "2", "memory", "1")} {
		again.SetUnproven("rome-id", pod)
	}
	if again.Grow("rome-id", b) == "" {
		t.Error("a size that was refused is granted after a restart")
	}
	again.Set("rome-id", b)
	if problem := again.Grow("rome-id", b); problem != "" {
		t.Errorf("a pod that has its size: %s", problem)
	}
	// A smaller grant does not keep a pod from what it has, or from less.
	l.SetGrant("rome-id", slice, list("cpu", "1", "memory", "1Gi", "pods", "9"))
	if problem := l.Grow("rome-id", a); problem != "" {
		t.Errorf("no growth: %s", problem)
	}
	b.Spec.Pod.Containers[0].Resources.Limits = nil
	if l.Grow("rome-id", b) == "" {
		t.Error("a pod without limits")
	}
	if l.Grow("turin-id", limited("other", "cpu", "1", "memory", "1")) == "" {
		t.Error("a peer without a grant")
	}
}
