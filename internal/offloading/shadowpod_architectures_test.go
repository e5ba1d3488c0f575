// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestArchitecturesOfACluster: in a cluster with nodes of two architectures, a new pod of a peer runs on nodes of the one that the peer's scheduler has seen, or on those
// that the pod names. A pod from before stays as it is.
func TestArchitecturesOfACluster(t *testing.T) {
	b := newShadowEnv(t)
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome"}}
	b.Make(tenant)
	remote := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}}
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	b.Edit(remote, func() { remote.Annotations = map[string]string{labels.ManagedByNamespaceMap: tenant.Name + "/milan"} })
	granted := &sharingv1alpha1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "milan", Labels: map[string]string{labels.Replicated: "true"}},
		Spec:       sharingv1alpha1.ResourceSliceSpec{ConsumerClusterID: "rome-id", ProviderClusterID: "milan-id", NodeName: "liqo-milan"},
	}
	b.Make(granted)
	nodes := func(architectures ...string) {
		b.EditStatus(granted, func() {
			granted.Status.Phase, granted.Status.Architectures = sharingv1alpha1.SliceAccepted, architectures
		})
	}
	runsOn := func(name, named string) string {
		shadow := b.createShadowPod(name, corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
			if named != "" {
				s.Annotations = map[string]string{labels.Architectures: named}
			}
		})
		pod := b.pod(shadow, nil)
		if _, has := pod.Annotations[labels.Architectures]; has {
			t.Errorf("pod %s has the annotation", name)
		}
		if pod.Spec.Affinity == nil {
			return ""
		}
		return fmt.Sprint(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions)
	}
	nodes("amd64")
	stop := b.run()
	if got := runsOn("old", "arm64"); got != "" {
		t.Errorf("in a cluster of one architecture: %s", got)
	}
	stop()
	nodes("amd64", "arm64")
	b.run()
	for name, c := range map[string][2]string{
		"plain": {"", "[{kubernetes.io/arch In [amd64]}]"}, "other": {"arm64", "[{kubernetes.io/arch In [arm64]}]"}, "both": {"arm64,amd64", "[{kubernetes.io/arch In [amd64 arm64]}]"},
	} {
		if got := runsOn(name, c[0]); got != c[1] {
			t.Errorf("%s: %s, want %s", name, got, c[1])
		}
	}
	var old corev1.Pod
	b.Must(b.Get(t.Context(), client.ObjectKey{Namespace: remoteNamespace, Name: "old"}, &old))
	if old.Spec.Affinity != nil || old.DeletionTimestamp != nil {
		t.Errorf("the pod from before: %+v", old.Spec.Affinity)
	}
}
