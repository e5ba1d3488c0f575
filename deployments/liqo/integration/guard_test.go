// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/policies"
)

// guarded are the kinds of the chart that limit peers, in the order in which Helm writes them.
var guarded = []string{"ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// rulesOf renders what limits peers.
func rulesOf(t *testing.T, set ...string) (all []*unstructured.Unstructured) {
	t.Helper()
	rendered := charttest.Render(t, set...)
	for _, kind := range guarded {
		for _, object := range rendered {
			if object.GetKind() == kind {
				all = append(all, object)
			}
		}
	}
	return all
}

// write applies objects of the chart as Helm does.
func write(t *testing.T, c client.Client, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
			t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// everyRule are values that ask for every policy and webhook.
const everyRule = "peers.images.allow={registry.example/*},peers.images.alwaysPull=true,peers.customResources={widgets.example.org}," +
	"peers.ingresses.hosts={*.rome.example}"

// guardOf returns a guard that reads the API server as it is, and requires what everyRule asks for.
func guardOf(c client.Client, further ...string) func(t *testing.T) string {
	guard := policies.Reading(c, further...)
	return func(t *testing.T) string {
		t.Helper()
		missing, err := guard.Missing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}
}

// TestAttackNL3: a policy or a webhook of the right name does not count if it is not what the chart made, also if it exists, is bound and denies.
func TestAttackNL3(t *testing.T) {
	_, _, root := installed(t, everyRule)
	if err := admissionv1.AddToScheme(root.Scheme()); err != nil {
		t.Fatal(err)
	}
	type (
		policy  = admissionv1.ValidatingAdmissionPolicy
		binding = admissionv1.ValidatingAdmissionPolicyBinding
		hooks   = admissionv1.ValidatingWebhookConfiguration
	)
	missing := guardOf(root, "liqo-peers-images", "liqo-peers-custom-resources")
	if got := missing(t); got != "" {
		t.Fatalf("as installed: %s", got)
	}
	rules := rulesOf(t, everyRule)
	hook := func(h *hooks, name string) *admissionv1.ValidatingWebhook {
		i := slices.IndexFunc(h.Webhooks, func(one admissionv1.ValidatingWebhook) bool { return one.Name == name+".validate.liqo.io" })
		if i < 0 {
			t.Fatalf("the chart has no webhook %s", name)
		}
		return &h.Webhooks[i]
	}
	ofPolicy := func(change func(*policy)) func(client.Object) { return func(o client.Object) { change(o.(*policy)) } }
	ofBinding := func(change func(*binding)) func(client.Object) { return func(o client.Object) { change(o.(*binding)) } }
	ofHooks := func(change func(*hooks)) func(client.Object) { return func(o client.Object) { change(o.(*hooks)) } }
	leavingOut := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}}}}
	}
	for _, test := range []struct {
		what, name string
		kind       client.Object
		change     func(client.Object) // nil: it is deleted
		want       string              // empty: the rules are in force
	}{
		{"a rule that permits all", "liqo-peers", &policy{}, ofPolicy(func(p *policy) {
			for i := range p.Spec.Validations {
				p.Spec.Validations[i].Expression = "true"
			}
		}), "made them: liqo-peers;"},
		{
			"one rule less", "liqo-peers-remote-namespaces", &policy{}, ofPolicy(func(p *policy) { p.Spec.Validations = p.Spec.Validations[1:] }),
			"made them: liqo-peers-remote-namespaces;",
		},
		{"a condition that is never met", "liqo-peers-objects", &policy{}, ofPolicy(func(p *policy) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "x", Expression: "false"})
		}), "made them: liqo-peers-objects;"},
		{"a namespace left out", "liqo-peers-pods", &policy{}, ofPolicy(func(p *policy) {
			p.Spec.MatchConstraints.NamespaceSelector = leavingOut("kubernetes.io/metadata.name", "web")
		}), "made them: liqo-peers-pods;"},
		{"a kind left out", "liqo-peers-claims", &policy{}, ofPolicy(func(p *policy) {
			p.Spec.MatchConstraints.ExcludeResourceRules = p.Spec.MatchConstraints.ResourceRules[:1]
		}), "made them: liqo-peers-claims;"},
		{"a policy of others", "liqo-volumes", &policy{}, ofPolicy(func(p *policy) {
			p.Annotations, p.Spec.Validations, p.Spec.MatchConditions = nil, []admissionv1.Validation{{Expression: "true"}}, nil
		}), "made them: liqo-volumes;"},
		{"no policy for images", "liqo-peers-images", &policy{}, nil, "missing: liqo-peers-images;"},
		{"no policy for custom resources", "liqo-peers-custom-resources", &policy{}, nil, "missing: liqo-peers-custom-resources;"},
		{"a binding to few", "liqo-peers", &binding{}, ofBinding(func(b *binding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: leavingOut("kubernetes.io/metadata.name", "web")}
		}), "denies: liqo-peers;"},
		{"a binding to no parameter", "liqo-peers-ingress-classes", &binding{}, ofBinding(func(b *binding) {
			b.Spec.ParamRef = &admissionv1.ParamRef{Name: "none", ParameterNotFoundAction: b.Spec.ParamRef.ParameterNotFoundAction}
		}), "denies: liqo-peers-ingress-classes;"},
		{
			"a binding that warns", "liqo-peers", &binding{},
			ofBinding(func(b *binding) { b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn} }), "denies: liqo-peers;",
		},
		{
			"a binding that audits, too", "liqo-peers", &binding{},
			ofBinding(func(b *binding) { b.Spec.ValidationActions = append(b.Spec.ValidationActions, admissionv1.Audit) }), "",
		},
		{"no webhooks", "liqo", &hooks{}, nil, "missing: ValidatingWebhookConfiguration liqo;"},
		{"a webhook less", "liqo", &hooks{}, ofHooks(func(h *hooks) {
			h.Webhooks = slices.DeleteFunc(h.Webhooks, func(one admissionv1.ValidatingWebhook) bool { return one.Name == "peerbytes.validate.liqo.io" })
		}), "made them: ValidatingWebhookConfiguration liqo;"},
		{"no comparison of hosts", "liqo", &hooks{}, ofHooks(func(h *hooks) {
			h.Webhooks = slices.DeleteFunc(h.Webhooks, func(one admissionv1.ValidatingWebhook) bool { return one.Name == "peerhosts.validate.liqo.io" })
		}), "made them: Validating"},
		{
			"a webhook that need not answer", "liqo", &hooks{},
			ofHooks(func(h *hooks) { hook(h, "peerbytes").FailurePolicy = new(admissionv1.Ignore) }), "made them: Validating",
		},
		{"a webhook for less", "liqo", &hooks{}, ofHooks(func(h *hooks) { hook(h, "peerbytes").Rules = hook(h, "peerbytes").Rules[1:] }), "made them: Validating"},
		{
			"a webhook that is never asked", "liqo", &hooks{},
			ofHooks(func(h *hooks) { hook(h, "shadowpod").MatchConditions[0].Expression = "false" }), "made them: Validating",
		},
		{
			"a webhook with another address", "liqo", &hooks{},
			ofHooks(func(h *hooks) { hook(h, "shadowpod").ClientConfig.Service.Name = "other" }), "made them: Validating",
		},
		{"what clouds and certificates change", "liqo", &hooks{}, ofHooks(func(h *hooks) {
			for i := range h.Webhooks {
				if selector := h.Webhooks[i].NamespaceSelector; selector != nil {
					selector.MatchExpressions = append(selector.MatchExpressions, leavingOut("control-plane", "true").MatchExpressions...)
				}
				h.Webhooks[i].ClientConfig.CABundle, h.Webhooks[i].TimeoutSeconds = h.Webhooks[0].ClientConfig.CABundle, new(int32(10))
			}
		}), ""},
	} {
		key := client.ObjectKey{Name: test.name}
		if err := root.Get(t.Context(), key, test.kind); err != nil {
			t.Fatal(err)
		}
		// The chart's object again: that is the remedy which the message gives.
		again := slices.IndexFunc(rules, func(one *unstructured.Unstructured) bool {
			return one.GetName() == test.name && one.GetKind() == kindOf(t, root, test.kind)
		})
		var err error
		if test.change == nil {
			err = root.Delete(t.Context(), test.kind)
		} else {
			test.change(test.kind)
			err = root.Update(t.Context(), test.kind)
		}
		if err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		if got := missing(t); (got != "") != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q in it", test.what, got, test.want)
		}
		if test.change != nil {
			if err := root.Delete(t.Context(), test.kind); err != nil {
				t.Fatal(err)
			}
		}
		write(t, root, rules[again])
		if got := missing(t); got != "" {
			t.Fatalf("%s, after the remedy: %s", test.what, got)
		}
	}
}

func kindOf(t *testing.T, c client.Client, object client.Object) string {
	t.Helper()
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		t.Fatal(err)
	}
	return kind.Kind
}

// TestUpgradeOfRules: an upgrade that changes every rule closes the cluster for peers at no moment, since the digest changes with its object; only rules of a
// chart that noted no digests are closed until Helm has written them.
func TestUpgradeOfRules(t *testing.T) {
	_, _, root := installed(t)
	if err := admissionv1.AddToScheme(root.Scheme()); err != nil {
		t.Fatal(err)
	}
	before, now := guardOf(root), guardOf(root, "liqo-peers-images", "liqo-peers-custom-resources")
	const other = everyRule + ",restrictInstallNamespace=false,controllerManager.config.peerPodSecurity=restricted,webhook.port=9555"
	if got := before(t); got != "" {
		t.Fatal(got)
	}
	if got := now(t); !strings.Contains(got, "missing: liqo-peers-images, liqo-peers-custom-resources;") {
		t.Errorf("the new program, before the upgrade: %q", got)
	}
	changed := 0
	for _, object := range rulesOf(t, other) {
		old := &unstructured.Unstructured{}
		old.SetGroupVersionKind(object.GroupVersionKind())
		if err := root.Get(t.Context(), client.ObjectKeyFromObject(object), old); err != nil ||
			old.GetAnnotations()["liqo.io/spec-digest"] != object.GetAnnotations()["liqo.io/spec-digest"] {
			changed++
		}
		write(t, root, object)
		if got := before(t); got != "" {
			t.Errorf("the program of before, after %s %s: %s", object.GetKind(), object.GetName(), got)
		}
	}
	if changed < 6 {
		t.Errorf("%d objects changed: the values are to be chosen anew", changed)
	}
	if got := now(t); got != "" {
		t.Errorf("the new program, after the upgrade: %s", got)
	}
	for _, object := range rulesOf(t) { // back
		write(t, root, object)
		if got := before(t); got != "" {
			t.Errorf("back, after %s %s: %s", object.GetKind(), object.GetName(), got)
		}
	}
	// A chart before this one noted nothing.
	all := rulesOf(t)
	for _, object := range all {
		bare := object.DeepCopy()
		bare.SetAnnotations(nil)
		write(t, root, bare)
	}
	if got := before(t); !strings.Contains(got, "liqoctl upgrade") {
		t.Errorf("without digests: %q", got)
	}
	write(t, root, all...)
	if got := before(t); got != "" {
		t.Errorf("after the upgrade: %s", got)
	}
}
