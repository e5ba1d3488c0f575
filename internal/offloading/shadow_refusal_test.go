// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestPolicyIsChanged: a policy of the provider refuses pods and slices, with the reason that is the default of Kubernetes: Invalid. Its administrator
// removes the policy, which is no event of what it refused: the pod and the slice are created, and the change of another pod is made.
func TestPolicyIsChanged(t *testing.T) {
	b := newShadowEnv(t)
	b.refusalRetry = time.Second
	b.rome()
	b.run()
	changed := b.createShadowPod("web", corev1.RestartPolicyAlways, nil)
	running := b.pod(changed, nil)
	b.startPod(running)
	b.untilPhase(changed, vkv1alpha1.ShadowPodRunning, running)

	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "administrator"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"", "discovery.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"pods", "endpointslices"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "object.metadata.?labels.?app.orValue('') != 'refused'", Message: "another app"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "administrator"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	b.Make(policy)
	b.Make(binding)
	b.Until("the policy is in force", func() bool {
		return b.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "probe", Labels: map[string]string{"app": "refused"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}, client.DryRunAll) != nil
	})
	// The default of a limit range makes a pod invalid whose own fields are valid.
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "administrator"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
	}}}}
	b.Make(limits)
	b.Until("the limit range is in force", func() bool {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}
		return b.Create(t.Context(), probe, client.DryRunAll) == nil && !probe.Spec.Containers[0].Resources.Limits.Cpu().IsZero()
	})
	limited := b.createShadowPod("limited", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	})
	b.event(limited, "FailedCreate", "must be less than or equal to cpu limit")
	b.Must(b.Delete(t.Context(), limits))
	b.pod(limited, nil)

	created := b.createShadowPod("refused", corev1.RestartPolicyAlways, nil)
	b.event(created, "FailedCreate", "a policy or a webhook of this cluster refuses the pod")
	b.Edit(changed, func() { changed.Labels["app"] = "refused" })
	b.event(changed, "FailedUpdate", "a policy or a webhook of this cluster refuses the pod")
	slice := b.createShadowSlice("refused", "10.1.0.5")
	b.Edit(slice, func() { slice.Labels["app"] = "refused" })
	b.event(slice, "FailedApply", "another app")

	b.Must(b.Delete(t.Context(), binding))
	b.pod(created, nil)
	b.Until("the pod is changed", func() bool { return b.exists(running) && running.Labels["app"] == "refused" })
	b.Until("the slice is changed", func() bool { return b.untilSlice("refused", true, "10.1.0.5").Labels["app"] == "refused" })
}
