// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestAttackL3Text: a provider writes texts with characters that are not visible or change the direction of writing, so that `kubectl describe` shows
// something else than what is there. Nothing of them arrives.
func TestAttackL3Text(t *testing.T) {
	const forged = "read\u202Eyna\u2066\u200B\u00AD\uFEFF\u001B[31m it\U000E0041\n\tnext é ✓ 你"
	const want = "readyna[31m it\n\tnext é ✓ 你"
	local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mapping.Local, Name: "web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	remote := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mapping.Remote, Name: "web"}, Status: corev1.PodStatus{
		Phase: corev1.PodRunning, Message: forged, Reason: forged,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: forged}},
	}}
	status, err := podstatus.Of(podstatus.Facts{Mapping: mapping, Local: local, Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: mapping.Remote, Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: mapping.Remote, Name: "web"}, Type: corev1.EventTypeWarning, Reason: "Failed", Message: forged,
	}
	for what, got := range map[string]string{
		"message": status.Message, "reason": status.Reason, "condition": status.Conditions[0].Message, "event": *events.Copy(mapping, local, event).Message,
	} {
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// TestSpeaker: a warning of the peer names the cluster that speaks. What is "this cluster" there is the other one here.
func TestSpeaker(t *testing.T) {
	m := project.NamespaceMapping{RemoteName: "milan", Local: "shop", Remote: "shop-rome"}
	local := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for theirs, want := range map[string]string{
		"the pod cannot be created: this cluster refuses it: failed quota: team": `the pod cannot be created: cluster "milan" refuses it: failed quota: team`,
		"0/3 nodes are available: 3 Insufficient cpu.":                           `cluster "milan": 0/3 nodes are available: 3 Insufficient cpu.`,
	} {
		event := events.Copy(m, local, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", UID: "1"}, Type: corev1.EventTypeWarning, Message: theirs,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "shop-rome", Name: "web"},
		})
		if event == nil || *event.Message != want {
			t.Errorf("%q: %v", theirs, event)
		}
	}
	remote := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu."},
		{Type: corev1.PodInitialized, Status: corev1.ConditionFalse, Message: "containers with incomplete status: [first]"},
	}}}
	status, err := podstatus.Of(podstatus.Facts{Mapping: m, Local: local, Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`cluster "milan": 0/3 nodes are available: 3 Insufficient cpu.`, "containers with incomplete status: [first]"} {
		if got := status.Conditions[i].Message; got != want {
			t.Errorf("condition %s: %q, want %q", status.Conditions[i].Type, got, want)
		}
	}
	remote.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if status, err = podstatus.Of(podstatus.Facts{Mapping: m, Local: local, Remote: remote}); err != nil || status.Conditions[0].Message != "" {
		t.Errorf("a pod that has a node: %v, %+v", err, status.Conditions)
	}
}
