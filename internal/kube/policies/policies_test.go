// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

type (
	policy  = admissionv1.ValidatingAdmissionPolicy
	binding = admissionv1.ValidatingAdmissionPolicyBinding
	hooks   = admissionv1.ValidatingWebhookConfiguration
)

// made notes the digest on an object, as the chart does.
func made[Object client.Object](object Object) Object {
	object.SetAnnotations(map[string]string{labels.SpecDigest: digestOf(object)})
	return object
}

// inForce returns what the chart makes.
func inForce() *rules {
	all := &rules{}
	for _, name := range Names {
		all.policies.Items = append(all.policies.Items, *made(&policy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail), Validations: []admissionv1.Validation{{Expression: "false"}},
		}}))
		all.bindings.Items = append(all.bindings.Items, *made(&binding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}))
	}
	hook := admissionv1.ValidatingWebhook{Name: "peerbytes", FailurePolicy: new(admissionv1.Fail), ClientConfig: admissionv1.WebhookClientConfig{
		Service: &admissionv1.ServiceReference{Name: "liqo-controller-manager", Path: new("/secret/validate/peer-objects")},
	}}
	all.webhooks.Items = []hooks{*made(&hooks{ObjectMeta: metav1.ObjectMeta{Name: Webhooks}, Webhooks: []admissionv1.ValidatingWebhook{hook}})}
	return all
}

// TestMissing: a policy counts only if it exists, is what the chart made, denies, and applies everywhere; and so do the webhooks.
func TestMissing(t *testing.T) {
	const victim = "liqo-peers"
	aks := metav1.LabelSelectorRequirement{Key: "kubernetes.azure.com/managedby", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"aks"}}
	for what, test := range map[string]struct {
		policy  func(*policy)
		binding func(*binding)
		hooks   func(*hooks)
		want    string // a part of the message; empty: in force
	}{
		"all there":          {},
		"being deleted":      {policy: func(p *policy) { p.DeletionTimestamp = &metav1.Time{} }, want: "missing: liqo-peers;"},
		"another name":       {policy: func(p *policy) { p.Name = "other" }, want: "missing: liqo-peers;"},
		"validates nothing":  {policy: func(p *policy) { p.Spec.Validations = nil }, want: "made them: liqo-peers;"},
		"validates less":     {policy: func(p *policy) { p.Spec.Validations[0].Expression = "true" }, want: "made them: liqo-peers;"},
		"ignores failures":   {policy: func(p *policy) { p.Spec.FailurePolicy = new(admissionv1.Ignore) }, want: "made them: liqo-peers;"},
		"is not the chart's": {policy: func(p *policy) { p.Annotations = nil }, want: "made them: liqo-peers;"},
		"with defaults": {policy: func(p *policy) {
			p.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{}}}
			made(p)
			p.Spec.MatchConstraints.MatchPolicy, p.Spec.MatchConstraints.NamespaceSelector, p.Spec.MatchConstraints.ObjectSelector = new(
				admissionv1.Equivalent,
			), &metav1.LabelSelector{}, &metav1.LabelSelector{}
			p.Spec.MatchConstraints.ResourceRules[0].Scope = new(admissionv1.AllScopes)
		}},

		"bound to another":         {binding: func(b *binding) { b.Spec.PolicyName = "other" }, want: "denies: liqo-peers;"},
		"binding is being deleted": {binding: func(b *binding) { b.DeletionTimestamp = &metav1.Time{} }, want: "denies: liqo-peers;"},
		"only warns": {
			binding: func(b *binding) { b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn} }, want: "denies: liqo-peers;",
		},
		"applies to few": {binding: func(b *binding) { b.Spec.MatchResources = &admissionv1.MatchResources{} }, want: "denies: liqo-peers;"},
		"also warns":     {binding: func(b *binding) { b.Spec.ValidationActions = append(b.Spec.ValidationActions, admissionv1.Audit) }},

		"no webhooks":            {hooks: func(h *hooks) { h.Name = "other" }, want: "missing: ValidatingWebhookConfiguration liqo;"},
		"webhooks being deleted": {hooks: func(h *hooks) { h.DeletionTimestamp = &metav1.Time{} }, want: "missing: ValidatingWebhookConfiguration liqo;"},
		"a webhook less":         {hooks: func(h *hooks) { h.Webhooks = nil }, want: "made them: ValidatingWebhookConfiguration liqo;"},
		"admits without answer":  {hooks: func(h *hooks) { h.Webhooks[0].FailurePolicy = new(admissionv1.Ignore) }, want: "made them: Validating"},
		"asks another":           {hooks: func(h *hooks) { h.Webhooks[0].ClientConfig.Service.Name = "other" }, want: "made them: Validating"},
		"asks another question":  {hooks: func(h *hooks) { h.Webhooks[0].ClientConfig.Service.Path = new("/secret/validate/other") }, want: "made them: Validating"},
		"leaves out a namespace": {hooks: func(h *hooks) {
			h.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}}},
			}
		}, want: "made them: Validating"},
		"only namespaces of a cloud": {hooks: func(h *hooks) {
			h.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: aks.Key, Operator: metav1.LabelSelectorOpIn, Values: aks.Values}},
			}
		}, want: "made them: Validating"},
		"leaves out the cloud's own": {hooks: func(h *hooks) {
			h.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{aks}}
		}},
		"other certificate, time, segment": {hooks: func(h *hooks) {
			h.Webhooks[0].TimeoutSeconds, h.Webhooks[0].ClientConfig.CABundle, h.Webhooks[0].ClientConfig.Service.Path = new(int32(9)), []byte("x"),
				new("/other/validate/peer-objects")
		}},
		"leaves out Google's own": {hooks: func(h *hooks) {
			h.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "gke-gmp-system"}},
			}}
		}},
		"leaves out every namespace": {hooks: func(h *hooks) {
			h.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpDoesNotExist}},
			}
		}, want: "made them: Validating"},
		"leaves out another as well": {hooks: func(h *hooks) {
			h.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "x"}},
			}}
		}, want: "made them: Validating"},
	} {
		all := inForce()
		i := slices.Index(Names, victim)
		if test.policy != nil {
			test.policy(&all.policies.Items[i])
		}
		if test.binding != nil {
			test.binding(&all.bindings.Items[i])
		}
		if test.hooks != nil {
			test.hooks(&all.webhooks.Items[0])
		}
		if got := missing(Names, all, intact); (got != "") != (test.want != "") || !strings.Contains(got, test.want) || strings.Contains(got, Names[0]) {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := missing(Names, &rules{}, intact); !strings.Contains(got, "missing: "+strings.Join(Names, ", ")+", ValidatingWebhookConfiguration liqo; without") {
		t.Errorf("without any: %q", got)
	}
	if got := missing(append(Names, "liqo-peers-images"), inForce(), intact); !strings.Contains(got, "missing: liqo-peers-images;") {
		t.Errorf("without what a value asks for: %q", got)
	}
	if got, err := (*Guard)(nil).Missing(t.Context()); got != "" || err != nil {
		t.Errorf("no guard: %q, %v", got, err)
	}
}
