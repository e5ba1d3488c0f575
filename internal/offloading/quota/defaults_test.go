// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadow"
)

func memoryVolume(size string) corev1.Volume {
	dir := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
	if size != "" {
		dir.SizeLimit = new(resource.MustParse(size))
	}
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: dir}}
}

func named(name string, change func(*corev1.PodSpec)) *vkv1alpha1.ShadowPod {
	return shadowPod(func(s *vkv1alpha1.ShadowPod) {
		s.Name, s.UID = name, types.UID(name)
		if change != nil {
			change(&s.Spec.Pod)
		}
	})
}

// container changes the only container of a pod.
func container(requests, limits corev1.ResourceList) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

// TestAttackNM2: a peer starts pods that cost nothing of its grant: without requests, with next to none, with memory as a volume, with limits of
// ephemeral storage.
func TestAttackNM2(t *testing.T) {
	granted := list("cpu", "200m", "memory", "1Gi", "ephemeral-storage", "20Gi", "pods", "1000")
	for what, test := range map[string]struct {
		change func(*corev1.PodSpec)
		grant  corev1.ResourceList
		fits   int
		want   string
	}{
		"nothing": {fits: 20, want: "10m of cpu (each container counts with 10m at least); 200m of 200m"},
		"storage": {
			grant: list("cpu", "1", "ephemeral-storage", "5Gi", "memory", "1Gi", "pods", "1000"), fits: 5,
			want: "1Gi of ephemeral-storage (the limit of each container counts, without one 1Gi); 5Gi of 5Gi",
		},
		"requests of 0":   {change: container(list("cpu", "0", "memory", "0", "ephemeral-storage", "0"), nil), fits: 20},
		"next to nothing": {change: container(list("cpu", "1m", "memory", "1", "ephemeral-storage", "1"), nil), fits: 20},
		"only a little of the pod": {change: func(spec *corev1.PodSpec) {
			spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1m", "memory", "1")}
		}, fits: 20},
		"cpu":    {grant: list("cpu", "95m", "memory", "1Gi", "pods", "1000"), fits: 9, want: "10m of cpu (each container counts with 10m at least); 90m of 95m"},
		"no cpu": {grant: list("cpu", "0", "memory", "1Gi", "pods", "1000"), fits: 0, want: "10m of cpu"},
		"memory": {
			grant: list("cpu", "1", "memory", "100Mi", "pods", "1000"), fits: 3,
			want: "32Mi of memory (each container counts with 32Mi at least, and a memory volume with its size); 96Mi of 100Mi",
		},
		"many containers": {change: func(spec *corev1.PodSpec) {
			spec.Containers = make([]corev1.Container, 10)
		}, fits: 2, want: "100m of cpu"},
		"one container with requests": {change: func(spec *corev1.PodSpec) {
			spec.Containers = append(spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: list("cpu", "50m")}})
		}, fits: 3, want: "60m of cpu"},
		"a sidecar": {change: func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		}, fits: 10},
		"a memory volume without a size": {change: func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{memoryVolume("")} }, fits: 16, want: "64Mi of memory"},
		"a memory volume of size 0":      {change: func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{memoryVolume("0")} }, fits: 16},
		"memory volumes": {change: func(spec *corev1.PodSpec) {
			spec.Volumes = []corev1.Volume{memoryVolume("300Mi"), memoryVolume("200Mi")}
		}, fits: 2, want: "500Mi of memory"},
		"endless memory volumes": {
			change: func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{memoryVolume("1e30"), memoryVolume("7E")} }, fits: 0,
			want: "of memory",
		},
		"ephemeral limits":        {change: container(list("ephemeral-storage", "0"), list("ephemeral-storage", "8Gi")), fits: 2, want: "8Gi of ephemeral-storage"},
		"ephemeral limits, below": {change: container(list("ephemeral-storage", "100Mi"), list("ephemeral-storage", "100Mi")), fits: 20, want: "10m of cpu"},

		// What cannot be used does not count, nor what a grant does not name: nodes that do not count ephemeral storage grant none.
		"small limits": {change: container(nil, list("cpu", "1m", "memory", "1Mi", "ephemeral-storage", "1Mi")), fits: 200, want: "1m of cpu"},
		"limits of the pod": {change: func(spec *corev1.PodSpec) {
			spec.Resources = &corev1.ResourceRequirements{Limits: list("cpu", "2m")}
			spec.Containers[0].Resources.Limits = list("ephemeral-storage", "1Mi")
		}, fits: 32},
		"a grant without":                 {grant: list("pods", "7"), fits: 7, want: "1 of pods"},
		"a grant without, with a request": {grant: list("pods", "7"), change: container(list("memory", "1"), nil), fits: 0, want: "0 of 0 granted"},
	} {
		t.Run(what, func(t *testing.T) {
			if test.grant == nil {
				test.grant = granted
			}
			l := NewLedger(false, testDefaults)
			l.SetGrant("rome-id", slice, test.grant)
			admitted, last := 0, ""
			for ; admitted < 2000; admitted++ {
				s := named(fmt.Sprint(admitted), test.change)
				if last = l.Admit("rome-id", s, time.Unix(0, 0), false); last != "" {
					break
				}
				shadow.Trim(s)
				l.Set("rome-id", s)
			}
			if admitted != test.fits || !strings.Contains(last, test.want) {
				t.Errorf("%d pods are admitted, want %d; then: %q, want %q", admitted, test.fits, last, test.want)
			}
		})
	}
}

// TestAttackNM2Upgrade: pods that run already stay and may be created again, although they count with more than the grant after an upgrade. New ones wait until
// others have ended.
func TestAttackNM2Upgrade(t *testing.T) {
	l := NewLedger(false, testDefaults)
	l.SetGrant("rome-id", slice, list("cpu", "100m", "memory", "64Mi", "ephemeral-storage", "1Gi", "pods", "10"))
	var running []*vkv1alpha1.ShadowPod
	for i := range 4 {
		pod := named(fmt.Sprint("old", i), nil)
		if i == 3 {
			pod = named("sized", container(list("cpu", "20m"), nil))
		}
		running = append(running, pod)
		if i%2 == 0 {
			l.Set("rome-id", pod)
		} else { // labels that changed meanwhile
			l.SetUnproven("rome-id", pod)
		}
	}
	for _, pod := range running {
		if problem := l.Grow("rome-id", pod); problem != "" {
			t.Errorf("pod %s: %s", pod.Name, problem)
		}
	}
	if l.Admit("rome-id", named("new", nil), time.Unix(0, 0), false) == "" {
		t.Error("a new pod beyond the grant")
	}
	// What an earlier process may have refused is judged as by that process: by what is requested.
	greedy := named("sized", container(list("cpu", "101m"), nil))
	l.SetUnproven("rome-id", greedy)
	if problem := l.Grow("rome-id", greedy); !strings.Contains(problem, "101m of cpu") {
		t.Errorf("a size beyond the grant: %q", problem)
	}
	for _, pod := range running {
		l.Delete(pod)
	}
	if problem := l.Admit("rome-id", named("new", nil), time.Unix(0, 0), false); problem != "" {
		t.Errorf("a new pod within the grant: %s", problem)
	}
	if len(l.extra) != 1 || !maps.Equal(l.extra["rome-id"], sums{"cpu": {low: 10}, "memory": {low: 32 << 20}, "ephemeral-storage": {low: 1 << 30}}) {
		t.Errorf("taken without requests: %v", l.extra)
	}
}

// TestFill: a new pod gets what it counts with, and stays valid. Filling twice changes nothing.
func TestFill(t *testing.T) {
	type requirements = corev1.ResourceRequirements
	for what, test := range map[string]struct {
		is, want   requirements
		whole      *requirements
		volumes    []string
		wantSizes  []string
		wantMemory string
	}{
		"nothing":  {want: requirements{Requests: list("cpu", "10m", "memory", "32Mi")}},
		"zero":     {is: requirements{Requests: list("cpu", "0", "memory", "0")}, want: requirements{Requests: list("cpu", "10m", "memory", "32Mi")}},
		"requests": {is: requirements{Requests: list("cpu", "1m", "memory", "1Gi")}, want: requirements{Requests: list("cpu", "1m", "memory", "1Gi")}},
		"limits":   {is: requirements{Limits: list("cpu", "1", "memory", "1Gi")}, want: requirements{Limits: list("cpu", "1", "memory", "1Gi")}},
		"zero and limits": {
			is:   requirements{Requests: list("cpu", "0", "memory", "0"), Limits: list("cpu", "1", "memory", "1Mi")},
			want: requirements{Requests: list("cpu", "10m", "memory", "1Mi"), Limits: list("cpu", "1", "memory", "1Mi")},
		},
		"a limit of zero": {
			is:   requirements{Limits: list("cpu", "0", "memory", "1Gi")},
			want: requirements{Requests: list("cpu", "10m"), Limits: list("memory", "1Gi")},
		},
		"amounts of the pod": {whole: &requirements{Requests: list("cpu", "1m"), Limits: list("memory", "1Mi")}},
		"much storage": {
			is:   requirements{Requests: list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "5Gi")},
			want: requirements{Requests: list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "5Gi"), Limits: list("ephemeral-storage", "5Gi")},
		},
		"memory volumes": {
			volumes: []string{"", "", "1Gi"}, wantSizes: []string{"64Mi", "64Mi", "1Gi"},
			want: requirements{Requests: list("cpu", "10m", "memory", "32Mi")},
		},
		"memory volumes of a pod with memory": {
			is: requirements{Requests: list("cpu", "1", "memory", "1Gi")}, volumes: []string{"", "0", "512Mi"},
			wantSizes: []string{"256Mi", "256Mi", "512Mi"}, want: requirements{Requests: list("cpu", "1", "memory", "1Gi")},
		},
	} {
		t.Run(what, func(t *testing.T) {
			spec := corev1.PodSpec{
				Containers:     []corev1.Container{{Name: "c", Resources: *test.is.DeepCopy()}},
				InitContainers: []corev1.Container{{Name: "i", Resources: *test.is.DeepCopy()}}, Resources: test.whole,
			}
			for _, size := range test.volumes {
				spec.Volumes = append(spec.Volumes, memoryVolume(size))
			}
			before := testDefaults.amounts(&spec)
			raise(before, requests(&spec))
			for range 2 {
				testDefaults.Fill(&spec)
				for _, item := range []corev1.Container{spec.Containers[0], spec.InitContainers[0]} {
					if !equality.Semantic.DeepEqual(item.Resources, test.want) {
						t.Errorf("container %s: %v, want %v", item.Name, item.Resources, test.want)
					}
				}
				for i, want := range test.wantSizes {
					if size := resource.MustParse(want); spec.Volumes[i].EmptyDir.SizeLimit.Cmp(size) != 0 {
						t.Errorf("volume %d has %v, want %s", i, spec.Volumes[i].EmptyDir.SizeLimit, want)
					}
				}
			}
			after := testDefaults.amounts(&spec)
			if raise(after, requests(&spec)); !maps.Equal(before, after) {
				t.Errorf("counts with %v after it was filled, before it with %v", after, before)
			}
			if scheduled := requests(&spec); scheduled[corev1.ResourceCPU] > before[corev1.ResourceCPU] ||
				scheduled[corev1.ResourceMemory] > before[corev1.ResourceMemory] {
				t.Errorf("requests %v, and counts with %v", scheduled, before)
			}
		})
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{}}, Volumes: []corev1.Volume{memoryVolume("")}}
	if (Defaults{}).Fill(&spec); spec.Containers[0].Resources.Requests != nil || spec.Volumes[0].EmptyDir.SizeLimit != nil {
		t.Errorf("without defaults: %v", spec)
	}
}
