// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMissing: a policy counts only if it exists, denies, and applies everywhere.
func TestMissing(t *testing.T) {
	type (
		policy  = admissionv1.ValidatingAdmissionPolicy
		binding = admissionv1.ValidatingAdmissionPolicyBinding
	)
	const victim = "liqo-peers"
	for what, test := range map[string]struct {
		policy  func(*policy)
		binding func(*binding)
		want    bool // missing
	}{
		"all there":                {want: false},
		"being deleted":            {policy: func(p *policy) { p.DeletionTimestamp = &metav1.Time{} }, want: true},
		"another name":             {policy: func(p *policy) { p.Name = "other" }, want: true},
		"validates nothing":        {policy: func(p *policy) { p.Spec.Validations = nil }, want: true},
		"ignores failures":         {policy: func(p *policy) { p.Spec.FailurePolicy = new(admissionv1.Ignore) }, want: true},
		"bound to another":         {binding: func(b *binding) { b.Spec.PolicyName = "other" }, want: true},
		"binding is being deleted": {binding: func(b *binding) { b.DeletionTimestamp = &metav1.Time{} }, want: true},
		"only warns":               {binding: func(b *binding) { b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn} }, want: true},
		"applies to few":           {binding: func(b *binding) { b.Spec.MatchResources = &admissionv1.MatchResources{} }, want: true},
		"also warns":               {binding: func(b *binding) { b.Spec.ValidationActions = append(b.Spec.ValidationActions, admissionv1.Audit) }, want: false},
	} {
		var policies []policy
		var bindings []binding
		for _, name := range Names {
			p := policy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{{Expression: "true"}}}}
			b := binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
			if name == victim && test.policy != nil {
				test.policy(&p)
			}
			if name == victim && test.binding != nil {
				test.binding(&b)
			}
			policies, bindings = append(policies, p), append(bindings, b)
		}
		if got := missing(policies, bindings); strings.Contains(got, victim+";") != test.want || (got != "") != test.want {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := missing(nil, nil); !strings.Contains(got, strings.Join(Names, ", ")) {
		t.Errorf("without any: %q", got)
	}
	if got, err := (*Guard)(nil).Missing(t.Context()); got != "" || err != nil {
		t.Errorf("no guard: %q, %v", got, err)
	}
}
