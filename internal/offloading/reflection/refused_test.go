// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
)

// refusing makes the provider refuse metadata in a domain and chosen node ports, in the words of the chart's policy.
func (e *env) refusing(namespace string) {
	e.t.Helper()
	everywhere := &admissionv1.NamedRuleWithOperations{}
	everywhere.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	everywhere.Rule = admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services", "configmaps"}}
	keys := func(of string) string {
		return fmt.Sprintf(`has(object.metadata.%[1]s) ? object.metadata.%[1]s.filter(key, key.startsWith("theirs.example/")) : []`, of)
	}
	e.must(e.provider.Create(e.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules:     []admissionv1.NamedRuleWithOperations{*everywhere},
			},
			Variables: []admissionv1.Variable{{Name: "labels", Expression: keys("labels")}, {Name: "annotations", Expression: keys("annotations")}},
			Validations: []admissionv1.Validation{
				{
					Expression: "size(variables.labels) + size(variables.annotations) == 0",
					MessageExpression: `"metadata refused: labels [" + variables.labels.join(", ") + ` +
						`"], annotations [" + variables.annotations.join(", ") + "]: not on the list"`,
				},
				{
					Expression: `request.resource.resource != "services" || !object.metadata.managedFields.exists(one, "f:ports" in one.fieldsV1["f:spec"]
						&& one.fieldsV1["f:spec"]["f:ports"].exists(key, "f:nodePort" in one.fieldsV1["f:spec"]["f:ports"][key]))`,
					Message: "node ports refused, a peer must not choose them",
				},
			},
		},
	}))
	e.must(e.provider.Create(e.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}))
	probe := configMap(namespace, "probe", "")
	probe.Labels = map[string]string{"theirs.example/a": ""}
	kubetest.Eventually(e.t, "the policy is in force", func() error {
		if err := e.provider.Create(e.t.Context(), probe.DeepCopy(), client.DryRunAll); err == nil {
			return errors.New("the label is accepted")
		}
		return nil
	})
}

// TestRefusedMetadata: the user loses the metadata that the peer does not accept, not the object, and an event names what the copy lacks. One
// refusal is enough for all objects of a kind.
func TestRefusedMetadata(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.refusing(remoteNS)
	e.run()
	both := map[string]string{"theirs.example/a": "x", "kept": "x"}
	first := configMap(local, "first", "1")
	first.Labels, first.Annotations = both, both
	e.must(e.consumer.Create(t.Context(), first))
	kept := func(object client.Object) {
		t.Helper()
		e.until(object.GetName()+" is reflected", func() bool { return e.exists(e.provider, object) })
		for _, keys := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
			if _, ok := keys["theirs.example/a"]; ok || keys["kept"] != "x" {
				t.Errorf("%s has %v", object.GetName(), keys)
			}
		}
	}
	kept(configMap(remoteNS, "first", ""))
	e.waitIdle()
	e.toProvider.reset()
	second := configMap(local, "second", "1")
	second.Labels, second.Annotations = both, both
	e.must(e.consumer.Create(t.Context(), second))
	kept(configMap(remoteNS, "second", ""))
	e.waitIdle()
	if got := e.toProvider.writesTo("configmaps"); len(got) != 1 {
		t.Errorf("the second object is written %d times, want once: %v", len(got), got)
	}

	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "web", Labels: both, Annotations: map[string]string{"kept": "x", labels.ForceRemoteNodePort: "true"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}
	e.must(e.consumer.Create(t.Context(), service))
	copied := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNS, Name: "web"}}
	kept(copied)
	e.until("an event names what the copy lacks", func() bool {
		var events corev1.EventList
		e.must(e.consumer.List(t.Context(), &events, client.InNamespace(local)))
		for i := range events.Items {
			if event := &events.Items[i]; event.InvolvedObject.Name == "web" && event.Reason == "ReflectionIncomplete" &&
				strings.Contains(event.Message, "node ports") &&
				strings.Contains(event.Message, "label theirs.example/a") && strings.Contains(event.Message, "peers.services") {
				return true
			}
		}
		return false
	})
}
