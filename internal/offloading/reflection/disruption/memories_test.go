// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func at(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// TestPods: what a pod was counts for a while, also of one that is gone, and in its namespace only.
func TestPods(t *testing.T) {
	var m Memories
	present := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
	}
	m.Changed(at("shop", "a"), web(true), start)
	m.Changed(at("shop", "gone"), web(true), start.Add(2*time.Second))
	m.Changed(at("other", "a"), web(true), start)
	for _, step := range []struct {
		after time.Duration
		want  map[string]int // how many states each pod had
	}{
		{0, map[string]int{"a": 1, "b": 0, "gone": 1}},
		{Lag - 1, map[string]int{"a": 1, "b": 0, "gone": 1}},
		{Lag, map[string]int{"a": 0, "b": 0, "gone": 1}},
		{2*time.Second + Lag, map[string]int{"a": 0, "b": 0}},
	} {
		got := m.Pods("shop", present, start.Add(step.after))
		if len(got) != len(step.want) {
			t.Errorf("after %v: %+v", step.after, got)
		}
		for _, pod := range got {
			if want, ok := step.want[pod.Name]; !ok || len(pod.Was) != want || pod.Exists != (pod.Name == "a") {
				t.Errorf("after %v: %+v, want %d states", step.after, pod, want)
			}
		}
	}
	for i := range 100 {
		m.Changed(at("shop", "a"), web(i%2 == 0), start.Add(time.Minute))
	}
	if pods := m.Pods("shop", present, start.Add(time.Minute)); len(pods[0].Was) != mostStates {
		t.Errorf("%d states of a pod that flickers", len(pods[0].Was))
	}
	m.Changed(at("shop", "late"), web(true), start.Add(time.Hour))
	if len(m.earlier) != 1 {
		t.Errorf("%d pods are remembered, want the last", len(m.earlier))
	}
}

// TestGone: a copy that the peer's administrator deletes stays away for an hour, one that we delete does not, and a namespace that ends forgets both.
func TestGone(t *testing.T) {
	var m Memories
	m.Deletes("shop", "ours")
	if m.Gone(at("shop", "web"), "ours", start) || m.StaysAway(at("shop", "web"), start) != 0 {
		t.Error("our own deletion counts as the administrator's")
	}
	if !m.Gone(at("shop", "web"), "another", start) || m.StaysAway(at("shop", "web"), start.Add(time.Minute)) != Respite-time.Minute {
		t.Error("the administrator's deletion does not count")
	}
	if m.StaysAway(at("shop", "web"), start.Add(Respite)) != 0 || len(m.away) != 0 {
		t.Error("it counts for ever")
	}
	for _, namespace := range []string{"shop", "other"} {
		m.Gone(at(namespace, "web"), "another", start)
		m.Deletes(namespace, types.UID(namespace))
		one := budget(1, 1)
		one.Namespace = namespace
		if _, _, err := m.Decide(one, pods(1), start); err != nil {
			t.Fatal(err)
		}
	}
	m.ForgetNamespace("shop")
	if len(m.away) != 1 || len(m.deleted) != 1 || len(m.memories) != 1 {
		t.Errorf("left: %v %v %v", m.away, m.deleted, m.memories)
	}
	m.Forget(at("other", "web"))
	if len(m.away)+len(m.memories) != 0 {
		t.Errorf("left: %v %v", m.away, m.memories)
	}
}

// TestBefore: what was sent and deleted before a restart counts as it did: a smaller number must have been enough for a while, and a copy that was deleted
// stays away for the rest of the hour. What this process knows itself counts more.
func TestBefore(t *testing.T) {
	var m Memories
	m.WasSent(at("shop", "web"), 2)
	var numbers []int32
	for i, current := range []int32{2, 3, 3, 1} {
		if i == 1 {
			m.WasSent(at("shop", "web"), 7) // compared again
		}
		is, _, err := m.Decide(budget(2, current), pods(2), start.Add(time.Duration(i)*Settle))
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, is.Number)
	}
	if !slices.Equal(numbers, []int32{2, 2, 1, 3}) {
		t.Errorf("numbers %v", numbers)
	}
	for name, c := range map[string]struct{ after, want time.Duration }{
		"just now": {0, Respite}, "a while ago": {-50 * time.Minute, 10 * time.Minute}, "long ago": {-2 * Respite, 0}, "by another clock": {time.Hour, Respite},
	} {
		m.WasDeleted(at("shop", name), start.Add(c.after), start)
		m.WasDeleted(at("shop", name), start.Add(-3*Respite), start) // an earlier event
		if left := m.StaysAway(at("shop", name), start); left != c.want {
			t.Errorf("%s: stays away for %v, want %v", name, left, c.want)
		}
	}
}

// TestRemembers: the number that was decided is kept between two decisions, and dropped with the last pod.
func TestRemembers(t *testing.T) {
	var m Memories
	var numbers []int32
	for i, current := range []int32{2, 3, 3} {
		is, _, err := m.Decide(budget(2, current), pods(2), start.Add(time.Duration(i)*Settle))
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, is.Number)
	}
	if !slices.Equal(numbers, []int32{2, 2, 1}) {
		t.Errorf("numbers %v", numbers)
	}
	for _, after := range []time.Duration{time.Minute, time.Minute + Linger} {
		if _, _, err := m.Decide(budget(2, 3), nil, start.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.memories) != 0 {
		t.Errorf("left: %v", m.memories)
	}
}
