// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
)

// hasty is a world in which the remote pod ends and disappears, with its ShadowPod, after so many reads.
type hasty struct {
	facts Facts
	after int
}

func (h *hasty) read() {
	if h.after--; h.after == 0 {
		last := h.facts.Remote.DeepCopy()
		last.Status.Phase = corev1.PodSucceeded
		h.facts.Memory.Last, h.facts.Shadow, h.facts.Remote = last, nil, nil
	}
}

func (h *hasty) State(f *Facts) {
	h.read()
	all := h.facts
	all.Local, all.Shadow, all.Remote, all.Memory = f.Local, f.Shadow, f.Remote, f.Memory
	*f = all
}
func (h *hasty) Local() *corev1.Pod                    { h.read(); return h.facts.Local }
func (h *hasty) Shadow() *metav1.PartialObjectMetadata { h.read(); return h.facts.Shadow }
func (h *hasty) Remote() *corev1.Pod                   { h.read(); return h.facts.Remote }
func (h *hasty) Forced(types.UID) bool                 { return false }

func (h *hasty) Memory(*corev1.Pod) Memory { h.read(); return h.facts.Memory }

// TestObserveHasty: a pod that ends and disappears while it is observed does not run again, and is not given up as vanished: its end is known.
func TestObserveHasty(t *testing.T) {
	for after := 1; after < 9; after++ {
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
			h := &hasty{running(), after}
			h.facts.Local.Spec.RestartPolicy = policy
			f := Observe(h)
			if step := Plan(&f); step.Outbound.Create || step.Inbound.Report == ReportVanished || step.Inbound.Report == ReportGone {
				t.Errorf("it ends after %d reads, restart policy %s: %+v", after, policy, step)
			}
		}
	}
}

// TestAbandoned: the peer will not create the pod of a local one that is being deleted once its ShadowPod goes, or was never sent.
func TestAbandoned(t *testing.T) {
	moment := metav1.NewTime(start)
	none := func(f *Facts) { f.Shadow = nil }
	for _, row := range []struct {
		name   string
		change []func(*Facts)
		want   bool
	}{
		{"its ShadowPod is there", nil, false},
		{"its ShadowPod goes", []func(*Facts){func(f *Facts) { f.Shadow.DeletionTimestamp = &moment }}, true},
		{"its ShadowPod is that of another pod", []func(*Facts){func(f *Facts) { f.Shadow.Annotations[labels.Fence] = "another" }}, true},
		{"none is there", []func(*Facts){none}, true},
		{"none is there yet, but one was sent", []func(*Facts){none, func(f *Facts) { f.Memory.Sent = true }}, false},
		{"none is there, as far as is known", []func(*Facts){none, func(f *Facts) { f.Shadows.Current = false }}, false},
		{"none is there, asked of the peer", []func(*Facts){none, func(f *Facts) { f.Memory.Sent, f.Live = true, &Live{} }}, true},
		{"its namespace is not offloaded", []func(*Facts){func(f *Facts) { f.Offloading = None }}, true},
		{"the local pod is not being deleted", []func(*Facts){none, func(f *Facts) { f.Local.DeletionTimestamp = nil }}, false},
	} {
		f := running()
		f.Local.DeletionTimestamp = &moment
		for _, change := range row.change {
			change(&f)
		}
		if got := f.abandoned(); got != row.want {
			t.Errorf("%s: abandoned %t, want %t", row.name, got, row.want)
		}
	}
}
