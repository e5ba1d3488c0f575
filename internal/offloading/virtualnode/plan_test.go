// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

var planTime = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// planSlice returns a slice by words: "deleting 10s" and "refused 10s" ago; "draining 10s": its condition reports so since then; "forced".
func planSlice(words ...string) *sharingv1alpha1.ResourceSlice {
	slice := &sharingv1alpha1.ResourceSlice{Status: sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted}}
	for _, text := range words {
		word, ago, _ := strings.Cut(text, " ")
		since, _ := time.ParseDuration(ago)
		at := metav1.NewTime(planTime.Add(-since))
		switch word {
		case "deleting":
			slice.DeletionTimestamp = &at
		case "refused":
			slice.Status.Phase = sharingv1alpha1.SliceRefused
			slice.Status.Conditions = append(slice.Status.Conditions, metav1.Condition{
				Type: sharingv1alpha1.ConditionGranted, Status: metav1.ConditionFalse, LastTransitionTime: at,
			})
		case "draining":
			slice.Status.Conditions = append(slice.Status.Conditions, metav1.Condition{
				Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionFalse, Reason: sharingv1alpha1.ReasonNodeDraining, LastTransitionTime: at,
			})
		case "forced":
			slice.Annotations = map[string]string{labels.ForceUnpeer: "true"}
		default:
			panic(word)
		}
	}
	return slice
}

func planNode(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "reason of the node"}}}}
}

func planPods(names ...string) (all []corev1.Pod) {
	for _, name := range names {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.TrimSuffix(name, "!")}}
		if strings.HasSuffix(name, "!") {
			pod.DeletionTimestamp = &metav1.Time{Time: planTime}
		}
		all = append(all, pod)
	}
	return all
}

func TestNextTeardown(t *testing.T) {
	ready, down := planNode(corev1.ConditionTrue), planNode(corev1.ConditionFalse)
	deployed, kubelet := &metav1.PartialObjectMetadata{}, planPods("vk")
	for _, c := range []struct {
		name  string
		facts facts
		want  string
	}{
		{"nothing left", facts{slice: planSlice("deleting 0s"), cleared: true}, "done"},
		{"nothing in the cache, but not listed live", facts{slice: planSlice("deleting 0s")}, "dismantle, again in 100ms"},
		{"idle node", facts{slice: planSlice("deleting 0s"), node: ready, deployment: deployed, kubelets: kubelet}, "dismantle, again in 100ms"},
		{"only the node", facts{slice: planSlice("deleting 0s"), node: ready}, "dismantle, again in 100ms"},
		{"only the deployment", facts{slice: planSlice("deleting 0s"), deployment: deployed}, "dismantle, again in 100ms"},
		{"only its pod, with rights", facts{slice: planSlice("deleting 0s"), kubelets: kubelet, rights: 1}, "dismantle, again in 100ms"},
		{"only its pod, without rights", facts{slice: planSlice("deleting 0s"), kubelets: kubelet, cleared: true}, "done"},
		{"pods are evicted", facts{slice: planSlice("deleting 1s"), node: ready, pods: planPods("a", "b!"), deployment: deployed}, "evict a, again in 1s"},
		{"just before the end", facts{slice: planSlice("deleting 119700ms", "draining 119700ms"), node: ready, pods: planPods("a")}, "evict a, again in 300ms"},
		{"the end", facts{slice: planSlice("deleting 120s", "draining 120s"), node: ready, pods: planPods("a", "b!")}, "remove a b, again in 200ms"},
		{"provider unreachable, in time", facts{slice: planSlice("deleting 24s", "draining 24s"), node: down, pods: planPods("a")}, "evict a, again in 1s"},
		{"provider unreachable, the end", facts{slice: planSlice("deleting 25s", "draining 25s"), node: down, pods: planPods("a")}, "remove a, again in 200ms"},
		{
			"provider unknown",
			facts{slice: planSlice("deleting 25s", "draining 25s"), node: planNode(corev1.ConditionUnknown), pods: planPods("a")},
			"remove a, again in 200ms",
		},
		{"forced", facts{slice: planSlice("deleting 0s", "forced"), node: ready, pods: planPods("a")}, "remove a, again in 200ms"},
		{
			"deleted now, by a clock that is ten minutes behind ours",
			facts{slice: planSlice("deleting 10m"), node: ready, pods: planPods("a")},
			"evict a, again in 1s",
		},
		{"a clock that went back", facts{slice: planSlice("deleting -5s"), node: ready, pods: planPods("a")}, "evict a, again in 1s"},
		{
			"withdrawn now, by a provider whose clock is an hour behind",
			facts{slice: planSlice("refused 1h"), node: ready, pods: planPods("a")},
			"evict a, again in 1s",
		},
		{"withdrawn, draining for a minute", facts{slice: planSlice("refused 0s", "draining 60s"), node: ready, pods: planPods("a")}, "evict a, again in 1s"},
		{"withdrawn, draining for two minutes", facts{slice: planSlice("refused 0s", "draining 120s"), node: ready, pods: planPods("a")}, "remove a, again in 200ms"},
		{
			"withdrawn, then deleted: the deadline stays",
			facts{slice: planSlice("refused 0s", "draining 120s", "deleting 0s"), node: ready, pods: planPods("a")},
			"remove a, again in 200ms",
		},
		{"pods of a node that is gone", facts{slice: planSlice("deleting 0s"), pods: planPods("a"), cleared: true}, "done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.now, c.facts.drainDeadline, c.facts.drainUnreached = planTime, 2*time.Minute, 25*time.Second
			if got := teardownText(nextTeardown(&c.facts)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func teardownText(next teardown) string {
	var parts []string
	list := func(verb string, pods []corev1.Pod) {
		if len(pods) > 0 {
			for _, pod := range pods {
				verb += " " + pod.Name
			}
			parts = append(parts, verb)
		}
	}
	list("evict", next.evict)
	list("remove", next.remove)
	if next.dismantle {
		parts = append(parts, "dismantle")
	}
	if next.done {
		parts = append(parts, "done")
	}
	if next.requeueAfter > 0 {
		parts = append(parts, fmt.Sprintf("again in %v", next.requeueAfter))
	}
	return strings.Join(parts, ", ")
}

func TestMustLeave(t *testing.T) {
	now := metav1.NewTime(planTime)
	for _, c := range []struct {
		name string
		pod  corev1.Pod
		want bool
	}{
		{"plain", corev1.Pod{}, true},
		{"of a ReplicaSet", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}}}, true},
		{"of a DaemonSet", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}}}, false},
		{"mirror", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, false},
		{"finished", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, false},
		{"failed", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, false},
		{"leaving", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(30))}}, true},
		{"ended because it is leaving", corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(30))}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
		}, true},
		{"held by a finalizer only", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: new(int64(0))}}, false},
	} {
		if got := mustLeave(&c.pod); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestNodeCondition(t *testing.T) {
	draining := func(words ...string) *sharingv1alpha1.ResourceSlice {
		return planSlice(append([]string{"refused 0s"}, words...)...)
	}
	wasReady := planSlice()
	wasReady.Status.Conditions = []metav1.Condition{{
		Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionTrue, Reason: sharingv1alpha1.ReasonNodeReady,
		LastTransitionTime: metav1.NewTime(planTime.Add(-time.Hour)),
	}}
	for _, c := range []struct {
		name  string
		facts facts
		want  string
		since time.Duration
	}{
		{"no node", facts{slice: planSlice()}, "False VirtualKubeletStarting the virtual kubelet is deployed and has not registered node", 0},
		{"ready", facts{slice: planSlice(), node: planNode(corev1.ConditionTrue)}, "True NodeReady the node is Ready", 0},
		{"still ready", facts{slice: wasReady, node: planNode(corev1.ConditionTrue)}, "True NodeReady the node is Ready", time.Hour},
		{"not ready", facts{slice: wasReady, node: planNode(corev1.ConditionFalse)}, "False NodeNotReady reason of the node", 0},
		{"unknown", facts{slice: wasReady, node: planNode(corev1.ConditionUnknown)}, "False NodeNotReady reason of the node", 0},
		{
			"drain starts",
			facts{slice: draining(), node: planNode(corev1.ConditionTrue), pods: planPods("a", "b")},
			"False NodeDraining the node waits for 2 pods to leave; those still there at 2030-01-01T12:02:00Z are deleted", 0,
		},
		{
			"drain goes on",
			facts{slice: draining("draining 30s"), node: planNode(corev1.ConditionFalse), pods: planPods("a")},
			"False NodeDraining the node waits for 1 pods to leave; those still there at 2030-01-01T11:59:55Z are deleted", 30 * time.Second,
		},
		{"going", facts{slice: draining("draining 30s"), kubelets: planPods("vk")}, "False NodeDraining the node is being removed", 30 * time.Second},
		{
			"gone",
			facts{slice: draining("draining 30s")},
			"False NodeDraining the node was removed, because the provider no longer shares with this cluster", 30 * time.Second,
		},
		{"wanted again", facts{slice: planSlice("draining 30s")}, "False VirtualKubeletStarting", 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.now, c.facts.drainDeadline, c.facts.drainUnreached = planTime, 2*time.Minute, 25*time.Second
			got := nodeCondition(&c.facts)
			if text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message); !strings.HasPrefix(text, c.want) {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if since := planTime.Sub(got.LastTransitionTime.Time); since != c.since {
				t.Errorf("since %v, want %v", since, c.since)
			}
		})
	}
}

func TestYoung(t *testing.T) {
	for age, want := range map[time.Duration]bool{
		0: true, rightsDelay - 1: true, rightsDelay: false, -time.Second: -time.Second >= -rightsDelay, -time.Hour: false, time.Hour: false,
	} {
		slice := &sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(planTime.Add(-age))}}
		if got := young(slice, planTime); got != want {
			t.Errorf("%v: %t", age, got)
		}
	}
}
