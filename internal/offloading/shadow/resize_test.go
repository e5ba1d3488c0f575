// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

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

// TestAttackResize: with a grant of three CPUs, a peer gets no more by changing the size of its pods, whatever it asks for in between.
func TestAttackResize(t *testing.T) {
	l := NewLedger(true)
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
	again := NewLedger(true)
	again.SetGrant("rome-id", slice, list("cpu", "3", "memory", "1Gi", "pods", "9"))
	for _, one := range []*vkv1alpha1.ShadowPod{b, limited("d", "cpu", "2", "memory", "1")} {
		again.SetUnproven("rome-id", one)
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
