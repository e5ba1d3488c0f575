// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestAttackH6PodOrders: a ShadowPod of a hostile peer gives orders to components of the provider's cluster, at first and by a change. Its pod
// has none of them, and an event names what the pod lacks.
func TestAttackH6PodOrders(t *testing.T) {
	b := shadowtest.New(t)
	b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Labels["sidecar.istio.io/inject"], s.Labels["app.kubernetes.io/name"] = "true", "web"
		s.Annotations["karpenter.sh/do-not-disrupt"] = "true"
		s.Spec.Pod.Tolerations = []corev1.Toleration{
			{Key: "dedicated", Operator: corev1.TolerationOpExists},
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		}
	})
	pod := b.Pod(s, nil)
	check := func() {
		t.Helper()
		for _, keys := range []map[string]string{pod.Labels, pod.Annotations} {
			for _, key := range []string{"sidecar.istio.io/inject", "karpenter.sh/do-not-disrupt", "azure.workload.identity/use", "vault.hashicorp.com/agent-inject"} {
				if _, ok := keys[key]; ok {
					t.Errorf("the pod has %s", key)
				}
			}
		}
		for _, key := range []string{"dedicated", "CriticalAddonsOnly"} {
			if slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool { return toleration.Key == key }) {
				t.Errorf("the pod tolerates %s", key)
			}
		}
		if pod.Labels["app"] != "web" || pod.Labels["app.kubernetes.io/name"] != "web" ||
			!slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool { return toleration.Key == corev1.TaintNodeNotReady }) {
			t.Errorf("the pod lacks what is allowed: %v %v", pod.Labels, pod.Spec.Tolerations)
		}
	}
	check()
	b.Event(s, "ReflectionIncomplete", "annotation karpenter.sh/do-not-disrupt, label sidecar.istio.io/inject, toleration of dedicated")

	b.Edit(s, func() {
		s.Labels["azure.workload.identity/use"], s.Annotations["vault.hashicorp.com/agent-inject"] = "true", "true"
		s.Spec.Pod.Tolerations = append(s.Spec.Pod.Tolerations, corev1.Toleration{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists})
		s.Spec.Pod.Containers[0].Image = "image:2"
	})
	b.Until("the pod follows", func() bool { return b.Exists(pod) && pod.Spec.Containers[0].Image == "image:2" })
	check()
}

// TestAttackL5Quota: a peer learns that a quota refuses its pod and what the pod asks for, not how the provider calls its quotas and how much of
// them is in use.
func TestAttackL5Quota(t *testing.T) {
	b := shadowtest.New(t)
	b.Run()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "gold-plan-of-rome"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("4711")}},
	}
	b.Make(quota)
	b.EditStatus(quota, func() {
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard} // no controller counts here
	})
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	b.Event(s, "FailedCreate", "exceeded quota of this namespace: requested: pods=1")
	var all eventsv1.EventList
	b.Must(b.List(t.Context(), &all, client.InNamespace(shadowtest.RemoteNamespace)))
	for i := range all.Items {
		if note := all.Items[i].Note; strings.Contains(note, "gold-plan") || strings.Contains(note, "4711") {
			t.Errorf("the peer reads %q", note)
		}
	}
}
