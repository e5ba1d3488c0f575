// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// TestNothingGrantedEvictsNothing: whatever a provider that answers grants, its node has no condition for which Kubernetes evicts pods or raises an alarm.
func TestNothingGrantedEvictsNothing(t *testing.T) {
	for name, grant := range map[string]*sharingv1alpha1.ResourceSliceStatus{
		"all": granted("4", "8G"), "no cpu": granted("0", "8G"), "no memory": granted("4", "0"), "nothing": {Phase: sharingv1alpha1.SliceAccepted},
		"far less than its pods use": granted("1m", "1"),
	} {
		inputs := testInputs()
		inputs.granted, inputs.reach = grant, reachable
		for _, condition := range inputs.conditions() {
			if wanted := condition.Type == corev1.NodeReady; (condition.Status == corev1.ConditionTrue) != wanted {
				t.Errorf("%s: %s=%s (%s: %s)", name, condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
}

func TestClosed(t *testing.T) {
	status := func(phase sharingv1alpha1.SlicePhase, reason string, resources ...string) *sharingv1alpha1.ResourceSliceStatus {
		made := &sharingv1alpha1.ResourceSliceStatus{Phase: phase, Resources: corev1.ResourceList{}}
		for i := 0; i < len(resources); i += 2 {
			made.Resources[corev1.ResourceName(resources[i])] = resource.MustParse(resources[i+1])
		}
		if reason != "" {
			made.Conditions = []metav1.Condition{{Type: sharingv1alpha1.ConditionGranted, Reason: reason}}
		}
		return made
	}
	const accepted, nothing, yes = sharingv1alpha1.SliceAccepted, sharingv1alpha1.ReasonNothingToShare, sharingv1alpha1.ReasonResourcesGranted
	for _, c := range []struct {
		name   string
		status *sharingv1alpha1.ResourceSliceStatus
		want   string
	}{
		{"granted", status(accepted, yes, "cpu", "1", "memory", "1G", "pods", "10"), ""},
		{"granted by a plugin that counts no pods", status(accepted, yes, "cpu", "1", "memory", "1G"), ""},
		{"all nodes are cordoned, pods run", status(accepted, nothing, "cpu", "1", "memory", "1G", "pods", "3"), closedNothing},
		{"all nodes are drained", status(accepted, nothing), closedNothing},
		{"less is granted than its pods use", status(accepted, yes, "cpu", "1m", "memory", "1", "pods", "1"), ""}, // the scheduler sees that nothing fits
		{"a plugin grants nothing", status(accepted, yes, "cpu", "0", "memory", "0"), closedNothing},
		{"no cpu", status(accepted, "", "memory", "1G"), closedNothing},
		{"no memory", status(accepted, "", "cpu", "1"), closedNothing},
		{"no place for a pod", status(accepted, yes, "cpu", "1", "memory", "1G", "pods", "0"), closedNothing},
		{"the plugin fails, the last grant stays", status(accepted, sharingv1alpha1.ReasonPluginFailed, "cpu", "1", "memory", "1G"), ""},
		{"an empty list", status(accepted, ""), closedNothing},
		{"not answered", status("", ""), closedUnanswered},
		{"pending", status(sharingv1alpha1.SlicePending, ""), closedUnanswered},
	} {
		closed := closedBy(&sharingv1alpha1.ResourceSlice{Status: *c.status})
		if closed.reason != c.want || (closed.reason == "") != (closed.message == "") {
			t.Errorf("%s: %+v, want %q", c.name, closed, c.want)
		}
	}
}

func TestTaints(t *testing.T) {
	theirs := corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}
	nothing, silent := closure{reason: closedNothing}, closure{reason: closedUnanswered}
	other := nothing.taint()
	other.Effect = corev1.TaintEffectNoExecute
	for _, c := range []struct {
		name    string
		closed  closure
		live    []corev1.Taint
		want    []corev1.Taint
		changed bool
	}{
		{"open stays open", closure{}, []corev1.Taint{theirs}, []corev1.Taint{theirs}, false},
		{"closes", nothing, []corev1.Taint{theirs}, []corev1.Taint{theirs, nothing.taint()}, true},
		{"closed stays closed", nothing, []corev1.Taint{nothing.taint(), theirs}, []corev1.Taint{theirs, nothing.taint()}, false},
		{"another reason", silent, []corev1.Taint{nothing.taint(), theirs}, []corev1.Taint{theirs, silent.taint()}, true},
		{"opens", closure{}, []corev1.Taint{nothing.taint(), theirs}, []corev1.Taint{theirs}, true},
		{"twice, by another client", nothing, []corev1.Taint{nothing.taint(), other}, []corev1.Taint{nothing.taint()}, true},
		{"no taint at all", closure{}, nil, nil, false},
	} {
		wanted, changed := c.closed.taints(c.live)
		if changed != c.changed || !slices.Equal(wanted, c.want) {
			t.Errorf("%s: %v %v", c.name, wanted, changed)
		}
	}
}

// TestDescribedBy: a provider whose nodes are all cordoned does not make its node one of another architecture.
func TestDescribedBy(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: "arm64", OperatingSystem: "linux"}}}
	inputs := testInputs()
	inputs.granted = describedBy(&sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted}, node)
	if inputs.arch() != "arm64" {
		t.Errorf("architecture %s", inputs.arch())
	}
	inputs.granted = describedBy(&sharingv1alpha1.ResourceSliceStatus{Architectures: []string{"riscv64"}}, node)
	if inputs.arch() != "riscv64" {
		t.Errorf("architecture %s", inputs.arch())
	}
}

// TestCloses: a grant that becomes empty, and one that is lost, take nothing from a node but new pods; its administrator's cordon and taints stay
// what they are.
func TestCloses(t *testing.T) {
	b := newEnv(t)
	b.slice(granted("4", "8G"))
	b.run()
	node := b.untilReady(corev1.ConditionTrue)
	b.Edit(node, func() {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	})
	since := ready(node).LastTransitionTime
	for _, step := range []struct {
		name      string
		do        func()
		closed    string
		cpu       string
		cordonned bool
	}{
		{"the provider has no node left", func() {
			all := granted("2", "4G")
			all.Conditions = []metav1.Condition{
				{Type: sharingv1alpha1.ConditionGranted, Status: metav1.ConditionFalse, Reason: sharingv1alpha1.ReasonNothingToShare, LastTransitionTime: metav1.Now()},
			}
			b.grant(all)
		}, closedNothing, "2", false},
		{"all nodes are drained", func() {
			b.grant(&sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted, Conditions: []metav1.Condition{
				{Type: sharingv1alpha1.ConditionGranted, Status: metav1.ConditionFalse, Reason: sharingv1alpha1.ReasonNothingToShare, LastTransitionTime: metav1.Now()},
			}})
		}, closedNothing, "0", false},
		{"less is granted than its pods use", func() { b.grant(granted("1m", "1M")) }, "", "1m", false},
		{"nothing at all is granted", func() { b.grant(&sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted}) }, closedNothing, "0", false},
		{"cordoned here meanwhile", func() { b.Edit(node, func() { node.Spec.Unschedulable = true }) }, closedNothing, "0", true},
		{"granted again", func() { b.grant(granted("4", "8G")) }, "", "4", true},
		{"uncordoned here", func() { b.Edit(node, func() { node.Spec.Unschedulable = false }) }, "", "4", false},
		{"the status of the slice is lost", func() { b.grant(&sharingv1alpha1.ResourceSliceStatus{}) }, closedUnanswered, "4", false},
		{"and restored", func() { b.grant(granted("4", "8G")) }, "", "4", false},
	} {
		step.do()
		b.Until(step.name, func() bool {
			b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))
			at := slices.IndexFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == labels.TaintNoNewPods })
			reason := ""
			if at >= 0 {
				reason = node.Spec.Taints[at].Value
			}
			return reason == step.closed && node.Status.Allocatable.Cpu().String() == step.cpu && node.Spec.Unschedulable == step.cordonned
		})
		if now := ready(node); now.Status != corev1.ConditionTrue || !now.LastTransitionTime.Equal(&since) {
			t.Errorf("%s: Ready=%s since %s: %s", step.name, now.Status, now.LastTransitionTime, now.Message)
		}
		if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "mine" }) {
			t.Errorf("%s: taints %v", step.name, node.Spec.Taints)
		}
	}
	if refused := b.denied.All(); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
}
