// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) corev1.ResourceList {
	made := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		made[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return made
}

func TestResize(t *testing.T) {
	from := &corev1.ResourceRequirements{Requests: list("cpu", "1", "example.com/gpu", "1"), Limits: list("memory", "1Gi")}
	to := &corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "1Gi", "example.com/gpu", "2")}
	want := &corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "1Gi", "example.com/gpu", "1"), Limits: list("memory", "1Gi")}
	if got := Resize(from, to); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(from.Requests) != 2 || len(to.Requests) != 3 {
		t.Error("an argument was changed")
	}
}

// TestResizeToNothing: a pod that has the default keeps it although its ShadowPod requests zero.
func TestResizeToNothing(t *testing.T) {
	desired := &corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("cpu", "0"), Limits: list("cpu", "0")}}},
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("cpu", "10m")}}}}}
	if ops := resize(desired, pod, func(string) bool { return true }); ops != nil {
		t.Errorf("the pod is changed: %v", ops)
	}
}
