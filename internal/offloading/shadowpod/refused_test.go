// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// TestPolicyIsChanged: a policy of the provider refuses pods and slices, with the reason that is the default of Kubernetes: Invalid. Its administrator
// removes the policy, which is no event of what it refused: the pod and the slice are created, and the change of another pod is made.
func TestPolicyIsChanged(t *testing.T) {
	b := shadowtest.New(t)
	b.RefusalRetry = time.Second
	b.Rome()
	b.Run()
	changed := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	running := b.Pod(changed, nil)
	b.StartPod(running)
	b.UntilPhase(changed, vkv1alpha1.ShadowPodRunning, running)

	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "administrator"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"", "discovery.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"pods", "endpointslices"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "object.metadata.?labels.?app.orValue('') != 'refused'", Message: "another app"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "administrator"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	b.Make(policy)
	b.Make(binding)
	b.Until("the policy is in force", func() bool {
		return b.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "probe", Labels: map[string]string{"app": "refused"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}, client.DryRunAll) != nil
	})
	// The default of a limit range makes a pod invalid whose own fields are valid.
	limits := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "administrator"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
		}}},
	}
	b.Make(limits)
	b.Until("the limit range is in force", func() bool {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}
		return b.Create(t.Context(), probe, client.DryRunAll) == nil && !probe.Spec.Containers[0].Resources.Limits.Cpu().IsZero()
	})
	limited := b.CreateShadowPod("limited", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	})
	b.Event(limited, "FailedCreate", "must be less than or equal to cpu limit")
	b.Must(b.Delete(t.Context(), limits))
	b.Pod(limited, nil)

	created := b.CreateShadowPod("refused", corev1.RestartPolicyAlways, nil)
	b.Event(
		created, "FailedCreate",
		"the pod cannot be created: this cluster refuses it: ValidatingAdmissionPolicy 'administrator' with binding 'administrator' denied request: another app",
	)
	b.Edit(changed, func() { changed.Labels["app"] = "refused" })
	b.Event(
		changed, "FailedUpdate",
		"the pod cannot be changed: this cluster refuses it: ValidatingAdmissionPolicy 'administrator' with binding 'administrator' denied request: another app",
	)
	slice := b.CreateShadowSlice("refused", "10.1.0.5")
	b.Edit(slice, func() { slice.Labels["app"] = "refused" })
	b.Event(slice, "FailedApply", "another app")

	b.Must(b.Delete(t.Context(), binding))
	b.Pod(created, nil)
	b.Until("the pod is changed", func() bool { return b.Exists(running) && running.Labels["app"] == "refused" })
	b.Until("the slice is changed", func() bool { return b.UntilSlice("refused", true, "10.1.0.5").Labels["app"] == "refused" })
}

// TestQuotaRefuses: a quota of the provider asks for limits that a pod does not have. The peer's user reads that, the log has it once, and the pod is
// created once the quota is gone.
func TestQuotaRefuses(t *testing.T) {
	b := shadowtest.New(t)
	b.RefusalRetry = time.Second
	b.Run()
	team := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "team"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"limits.cpu": resource.MustParse("2"), "limits.memory": resource.MustParse("2Gi")},
	}}
	b.Make(team)
	b.EditStatus(team, func() { // as the controller of quotas does
		team.Status = corev1.ResourceQuotaStatus{
			Hard: team.Spec.Hard, Used: corev1.ResourceList{"limits.cpu": resource.MustParse("0"), "limits.memory": resource.MustParse("0")},
		}
	})
	b.Until("the quota is in force", func() bool {
		return b.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}, client.DryRunAll) != nil
	})
	refused := b.CreateShadowPod("web", corev1.RestartPolicyAlways, nil)
	b.Event(refused, "FailedCreate", "failed quota of this namespace: must specify limits.cpu for: c; limits.memory for: c")
	b.Must(b.Delete(t.Context(), team))
	b.Pod(refused, nil)
}

// TestLeftOutLater: a label with a domain that a running pod gets is reported like one that it has from the start, once; those that the API server of
// the consumer copies from its node are not.
func TestLeftOutLater(t *testing.T) {
	b := shadowtest.New(t)
	b.Run()
	s := b.CreateShadowPod("db", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Labels[corev1.LabelTopologyZone], s.Labels[corev1.LabelTopologyRegion] = "a", "b"
	})
	pod := b.Pod(s, nil)
	b.StartPod(pod)
	count := func() (found []string) {
		var all eventsv1.EventList
		b.Must(b.List(t.Context(), &all, client.InNamespace(shadowtest.RemoteNamespace)))
		for i := range all.Items {
			if all.Items[i].Regarding.UID == s.UID && all.Items[i].Reason == "ReflectionIncomplete" {
				found = append(found, all.Items[i].Note)
			}
		}
		return found
	}
	b.DrainQueue("before")
	if got := count(); len(got) != 0 {
		t.Errorf("labels of the node are reported: %v", got)
	}
	b.Edit(s, func() { s.Labels["cnpg.io/instanceRole"], s.Labels["role"] = "primary", "primary" })
	b.Event(s, "ReflectionIncomplete", "label cnpg.io/instanceRole")
	b.Until("the label without a domain arrives", func() bool { return b.Exists(pod) && pod.Labels["role"] == "primary" })
	b.Edit(s, func() { s.Labels["role"] = "replica" })
	b.Until("it changes", func() bool { return b.Exists(pod) && pod.Labels["role"] == "replica" })
	b.DrainQueue("after")
	if got := count(); len(got) != 1 || strings.Contains(got[0], "topology") {
		t.Errorf("reported: %v", got)
	}
	b.Edit(s, func() { s.Annotations["cnpg.io/status"] = "x" })
	b.Event(s, "ReflectionIncomplete", "annotation cnpg.io/status, label cnpg.io/instanceRole")
}
