// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestRefusedEphemeralContainer: an ephemeral container that the provider refuses can never be removed from the local pod. Other changes of the pod reach the
// provider all the same, and the container does once the provider accepts it.
func TestRefusedEphemeralContainer(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	e.waitIdle()
	// As the webhook of a provider with the level Baseline does.
	name := "test-ephemeral-" + remoteNS
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("", name), Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: remoteNS}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"shadowpods"}},
			}}},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: "!has(object.spec.pod.ephemeralContainers)", Message: "privileged is not allowed", Reason: new(metav1.StatusReasonForbidden),
		}},
	}}
	e.must(e.provider.Create(t.Context(), policy))
	t.Cleanup(func() { _ = e.provider.Delete(context.Background(), policy) })
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: named("", name),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	e.must(e.provider.Create(t.Context(), binding))
	t.Cleanup(func() { _ = e.provider.Delete(context.Background(), binding) })
	debug := []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "shell", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
	}}}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	accepts := func() bool {
		e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
		shadow.Spec.Pod.EphemeralContainers = debug
		return e.provider.Update(t.Context(), shadow, client.DryRunAll) == nil
	}
	e.until("the policy is in force", func() bool { return !accepts() })

	pod := &corev1.Pod{ObjectMeta: named(local, "web")}
	e.must(e.consumer.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Spec.EphemeralContainers = debug
	e.must(e.consumer.SubResource("ephemeralcontainers").Update(t.Context(), pod))
	e.until("an event gives the reason", func() bool {
		var events corev1.EventList
		e.must(e.consumer.List(t.Context(), &events, client.InNamespace(local)))
		return slices.ContainsFunc(events.Items, func(one corev1.Event) bool {
			return one.Reason == "FailedReflection" && strings.Contains(one.Message, "without its new ephemeral containers") &&
				strings.Contains(one.Message, "privileged is not allowed")
		})
	})
	e.edit(e.consumer, pod, func() { pod.Labels["app"], pod.Spec.Containers[0].Image = "quarantine", "app:2" })
	e.until("other changes follow", func() bool {
		return e.exists(e.provider, shadow) && shadow.Labels["app"] == "quarantine" && shadow.Spec.Pod.Containers[0].Image == "app:2"
	})
	e.waitIdle()
	e.toProvider.reset()
	e.edit(e.consumer, pod, func() { pod.Labels["app"] = "web" })
	e.until("the next change follows", func() bool { return e.exists(e.provider, shadow) && shadow.Labels["app"] == "web" })
	e.waitIdle()
	if got := e.toProvider.writesTo("/shadowpods/web"); len(got) != 1 {
		t.Errorf("the provider is asked again for what it has refused a moment ago: %v", got)
	}

	// Its administrator accepts it, and a change of the spec asks for all.
	e.must(e.provider.Delete(t.Context(), binding))
	e.until("the provider accepts it", accepts)
	e.edit(e.consumer, pod, func() { pod.Spec.Containers[0].Image = "app:3" })
	e.until("the container follows", func() bool { return e.exists(e.provider, shadow) && len(shadow.Spec.Pod.EphemeralContainers) == 1 })
}
