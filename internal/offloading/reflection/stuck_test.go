// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestLostNode: the node of the provider that runs a pod is lost, and the provider deletes the pod without end. It is deleted here, so that its controller
// replaces it. Pods that nothing replaces before they have ended stay.
func TestLostNode(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) { o.StuckTimeout = 100 * time.Millisecond }
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	provider.holdEnds() // as without a kubelet
	e.run()
	for name, owner := range map[string]string{"web": "ReplicaSet", "db": "StatefulSet", "bare": ""} {
		pod := e.pod(local, name)
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "of-" + name, UID: "owner", Controller: new(true)}}
		}
		e.must(e.consumer.Create(t.Context(), pod))
		e.untilPod(local, name, "Ready", isReady)
	}
	for _, name := range []string{"db", "bare", "web"} { // as Kubernetes does for the taint of a lost node
		e.must(e.provider.Delete(t.Context(), &corev1.Pod{ObjectMeta: named(remoteNS, name)}))
	}
	e.untilPod(local, "web", "is deleted", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	e.untilMessage(named(local, "web"), "its node there is lost")
	e.waitIdle()
	for _, name := range []string{"db", "bare"} {
		e.untilPod(local, name, "stays", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	}
	e.untilPod(local, "web", "stays while the provider has it", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	provider.endAll(remoteNS)
	e.until("it is gone once it has ended there", func() bool { return !e.exists(e.consumer, &corev1.Pod{ObjectMeta: named(local, "web")}) })
}

// TestEvictedForGood: the provider has evicted pods, and no other node takes them. They are replaced, so that the scheduler here finds another place. A pod
// that has never run there stays: the scheduler has chosen that place a moment ago.
func TestEvictedForGood(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) { o.StuckTimeout = 100 * time.Millisecond }
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	owned := func(name string) *corev1.Pod {
		pod := e.pod(local, name)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "of-" + name, UID: "owner", Controller: new(true)}}
		return pod
	}
	homeless := func(name string) {
		t.Helper()
		remote := &corev1.Pod{ObjectMeta: named(remoteNS, name)}
		e.until("the provider has "+name, func() bool { return e.exists(e.provider, remote) })
		provider.status(remote, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available"},
		}})
	}
	e.must(e.consumer.Create(t.Context(), owned("web")))
	e.untilPod(local, "web", "Ready", isReady)
	provider.holdReady(true)
	e.must(e.consumer.Create(t.Context(), owned("fresh")))
	homeless("fresh")
	e.must(e.provider.Delete(t.Context(), &corev1.Pod{ObjectMeta: named(remoteNS, "web")}, client.GracePeriodSeconds(0)))
	homeless("web")
	e.untilMessage(named(local, "web"), "no node there takes it")
	e.until("it is gone, and can be replaced", func() bool { return !e.exists(e.consumer, &corev1.Pod{ObjectMeta: named(local, "web")}) })
	e.waitIdle()
	e.untilPod(local, "fresh", "stays", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
}
