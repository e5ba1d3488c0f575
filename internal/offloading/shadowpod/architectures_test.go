// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestArchitecturesOfACluster: in a cluster with nodes of two architectures, a new pod of a peer runs on nodes of the one that the peer's scheduler
// has seen, or on those that the pod names. A pod from before stays as it is.
func TestArchitecturesOfACluster(t *testing.T) {
	b := shadowtest.New(t)
	nodes := b.Architectures()
	runsOn := func(name, named string) string {
		shadow := b.CreateShadowPod(name, corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			if named != "" {
				s.Annotations = map[string]string{labels.Architectures: named}
			}
		})
		pod := b.Pod(shadow, nil)
		if _, ok := pod.Annotations[labels.Architectures]; ok {
			t.Errorf("pod %s has the annotation", name)
		}
		if pod.Spec.Affinity == nil {
			return ""
		}
		return fmt.Sprint(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions)
	}
	nodes("amd64")
	stop := b.Run()
	if got := runsOn("old", "arm64"); got != "" {
		t.Errorf("in a cluster of one architecture: %s", got)
	}
	stop()
	nodes("amd64", "arm64")
	b.Run()
	for name, c := range map[string][2]string{
		"plain": {"", "[{kubernetes.io/arch In [amd64]}]"}, "other": {"arm64", "[{kubernetes.io/arch In [arm64]}]"},
		"both": {"arm64,amd64", "[{kubernetes.io/arch In [amd64 arm64]}]"},
	} {
		if got := runsOn(name, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", name, got, c[1])
		}
	}
	var old corev1.Pod
	b.Must(b.Get(t.Context(), client.ObjectKey{Namespace: shadowtest.RemoteNamespace, Name: "old"}, &old))
	if old.Spec.Affinity != nil || old.DeletionTimestamp != nil {
		t.Errorf("the pod from before: %+v", old.Spec.Affinity)
	}
}

// TestArchitectureIsRemembered: a pod of a peer that is created again runs on the architecture that it had, although most nodes have another one
// meanwhile, as long as there is a node of it. A pod of an earlier version follows the majority.
func TestArchitectureIsRemembered(t *testing.T) {
	b := shadowtest.New(t)
	nodes := b.Architectures()
	nodes("amd64")
	stop := b.Run()
	on := func(pod *corev1.Pod) string {
		if pod.Spec.Affinity == nil {
			return ""
		}
		return fmt.Sprint(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Values)
	}
	// reported waits until the controllers know what the peer is reported.
	probes := 0
	reported := func(architectures ...string) {
		t.Helper()
		nodes(architectures...)
		b.Until("the controllers know the architectures", func() bool {
			probes++
			return on(b.Pod(b.CreateShadowPod(fmt.Sprint("probe-", probes), corev1.RestartPolicyAlways, nil), nil)) == "["+architectures[0]+"]"
		})
	}
	all := map[string]*vkv1alpha1.ShadowPod{}
	for _, name := range []string{"old", "young", "earlier"} {
		all[name] = b.CreateShadowPod(name, corev1.RestartPolicyAlways, nil)
		b.StartPod(b.Pod(all[name], nil))
	}
	b.UntilPhase(all["old"], vkv1alpha1.ShadowPodRunning, b.Pod(all["old"], nil))
	// evict replaces a pod.
	evict := func(name string) *corev1.Pod {
		t.Helper()
		pod := b.Pod(all[name], nil)
		if pod.Spec.NodeName == "" {
			b.StartPod(pod)
		}
		b.Must(b.Delete(t.Context(), pod))
		b.DrainQueue("before-" + name + "-" + string(pod.UID)[:8])
		b.EndPod(pod, corev1.PodFailed)
		return b.Pod(all[name], pod)
	}
	reported("arm64", "amd64")
	if pod := evict("old"); on(pod) != "[amd64]" {
		t.Errorf("a pod from when there was one architecture only runs on %s, want [amd64]", on(pod))
	}
	stop()

	// Of a pod that is younger than a minute, no phase is recorded before it is deleted.
	b.Ahead.Store(0)
	b.EditStatus(all["young"], func() { all["young"].Status = vkv1alpha1.ShadowPodStatus{Phase: vkv1alpha1.ShadowPodPending} })
	// A pod of an earlier version has no record.
	earlier := b.Pod(all["earlier"], nil)
	b.Edit(earlier, func() { delete(earlier.Annotations, labels.PodArchitecture) })
	b.EditStatus(all["earlier"], func() { all["earlier"].Status.Architecture = "" })
	stop = b.Run()
	if pod := evict("young"); on(pod) != "[amd64]" {
		t.Errorf("a young pod runs on %s, want [amd64]", on(pod))
	}
	if pod := evict("earlier"); on(pod) != "[arm64]" {
		t.Errorf("a pod of an earlier version runs on %s, want [arm64]", on(pod))
	}
	reported("s390x", "arm64")
	reported("arm64", "s390x")
	if pod := evict("young"); on(pod) != "[arm64]" {
		t.Errorf("a pod without a node of its architecture runs on %s, want [arm64]", on(pod))
	}
	reported("s390x", "arm64")
	if pod := evict("young"); on(pod) != "[arm64]" {
		t.Errorf("after that, it runs on %s, want [arm64]", on(pod))
	}
	b.Read(all["young"])
	if got := all["young"].Status.Architecture; got != "arm64" {
		t.Errorf("the ShadowPod remembers %q", got)
	}
	stop()
}
