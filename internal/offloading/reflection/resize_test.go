// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestResize: CPU and memory follow a resize of the local pod, and what the kubelet of the provider reports of it comes back. What the provider refuses
// keeps no other change from it, and is asked for again when it is changed.
func TestResize(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(t.Context(), &corev1.Node{ObjectMeta: named("", e.node), Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("9"),
	}}}))
	created := e.pod(local, "web")
	created.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("2")}
	e.must(e.consumer.Create(t.Context(), created))
	e.untilPod(local, "web", "Ready", isReady)
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
	report := func(cpu string, conditions ...corev1.PodCondition) {
		t.Helper()
		amount := corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
		status := remote.Status.DeepCopy()
		status.Conditions = append(slices.DeleteFunc(status.Conditions, func(one corev1.PodCondition) bool {
			return one.Type == corev1.PodResizeInProgress || one.Type == corev1.PodResizePending
		}), conditions...)
		status.ContainerStatuses[0].AllocatedResources, status.ContainerStatuses[0].Resources = amount, &corev1.ResourceRequirements{Requests: amount}
		provider.status(remote, *status)
	}
	reported := func(cpu string, kinds ...corev1.PodConditionType) {
		t.Helper()
		e.untilPod(local, "web", "reports "+cpu, func(pod *corev1.Pod) bool {
			status := pod.Status.ContainerStatuses[0]
			for _, kind := range []corev1.PodConditionType{corev1.PodResizeInProgress, corev1.PodResizePending} {
				has := slices.ContainsFunc(pod.Status.Conditions, func(one corev1.PodCondition) bool { return one.Type == kind && one.Status == corev1.ConditionTrue })
				if has != slices.Contains(kinds, kind) {
					return false
				}
			}
			return status.Resources != nil && status.Resources.Requests.Cpu().String() == cpu && status.AllocatedResources.Cpu().String() == cpu
		})
	}
	resize := func(cpu string) {
		t.Helper()
		patch := `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"` + cpu + `"}}}]}}`
		e.must(e.consumer.SubResource("resize").Patch(t.Context(), &corev1.Pod{ObjectMeta: named(local, "web")},
			client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	has := func(cpu string) func() bool {
		return func() bool {
			return e.exists(e.provider, shadow) && shadow.Spec.Pod.Containers[0].Resources.Requests.Cpu().String() == cpu
		}
	}
	report("2")
	reported("2")
	e.waitIdle()
	e.toProvider.reset()
	resize("1")
	e.until("the ShadowPod follows", has("1"))
	// Until its kubelet has made it smaller, the pod has what it had.
	report("2", corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue})
	reported("2", corev1.PodResizeInProgress)
	report("1")
	reported("1")
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 1 {
		t.Errorf("written to the provider: %v", got)
	}
	resize("3")
	e.until("the ShadowPod follows", has("3"))
	report("1", corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred})
	reported("1", corev1.PodResizePending)

	// A provider that refuses: its grant is used up, or its version does not know how.
	refusing := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: named("", "test-"+remoteNS),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: remoteNS}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"*"},
						Resources: []string{"shadowpods"},
					},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: `object.spec.pod.containers[0].resources.requests.cpu != "4"`,
				Message:    "no more is granted",
			}},
		},
	}
	e.must(e.provider.Create(t.Context(), refusing))
	t.Cleanup(func() { _ = e.provider.Delete(context.Background(), refusing) })
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: refusing.ObjectMeta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: refusing.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	binding.ResourceVersion, binding.UID = "", ""
	e.must(e.provider.Create(t.Context(), binding))
	t.Cleanup(func() { _ = e.provider.Delete(context.Background(), binding) })
	e.until("the policy is in force", func() bool {
		e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
		shadow.Spec.Pod.Containers[0].Resources.Requests["cpu"] = resource.MustParse("4")
		return apierrors.IsInvalid(e.provider.Update(t.Context(), shadow, client.DryRunAll)) ||
			apierrors.IsForbidden(e.provider.Update(t.Context(), shadow, client.DryRunAll))
	})
	resize("4")
	e.until("an event gives the reason", func() bool {
		var events corev1.EventList
		e.must(e.consumer.List(t.Context(), &events, client.InNamespace(local)))
		return slices.ContainsFunc(events.Items, func(one corev1.Event) bool {
			return one.Reason == "FailedReflection" && strings.Contains(one.Message, "keeps its CPU and memory") && strings.Contains(one.Message, "no more is granted")
		})
	})
	pod := &corev1.Pod{ObjectMeta: named(local, "web")}
	e.edit(e.consumer, pod, func() { pod.Spec.Containers[0].Image = "app:2" })
	e.until("another change follows", func() bool { return has("3")() && shadow.Spec.Pod.Containers[0].Image == "app:2" })
	resize("5")
	e.until("the next size is asked for at once", has("5"))
}
