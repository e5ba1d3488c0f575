// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// intact reports whether an object is what the chart made: whether its annotation is the digest of its content. The annotation guards against edits, and
// against objects of others with the same name. Who may write admission policies and wants to deceive has all rights already.
func intact(object client.Object) bool {
	noted := object.GetAnnotations()[labels.SpecDigest]
	return noted != "" && noted == digestOf(object)
}

// digestOf computes what liqo.digested of the chart (_helpers.tpl) notes on an object. The defaults of the API server are left out, because the chart does
// not set them; TestAttackNL3 shows that nothing else differs.
func digestOf(object client.Object) string {
	switch object := object.DeepCopyObject().(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		withoutDefaults(object.Spec.MatchConstraints)
		return digest(object.Spec)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		object.Spec.ValidationActions = nil
		return digest(object.Spec)
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range object.Webhooks {
			hook := &object.Webhooks[i]
			hook.TimeoutSeconds, hook.ClientConfig.CABundle = nil, nil
			if service := hook.ClientConfig.Service; service != nil && service.Path != nil {
				_, path, _ := strings.Cut(strings.TrimPrefix(*service.Path, "/"), "/")
				service.Path = new("/" + path)
			}
			hook.MatchPolicy, hook.NamespaceSelector, hook.ObjectSelector = otherPolicy(hook.MatchPolicy), selects(hook.NamespaceSelector), selects(hook.ObjectSelector)
			for j := range hook.Rules {
				hook.Rules[j].Scope = otherScope(hook.Rules[j].Scope)
			}
		}
		return digest(object.Webhooks)
	default:
		return ""
	}
}

// digest returns the SHA-256 of a value as JSON with sorted keys, in which Helm writes it.
func digest(value any) string {
	raw, err := json.Marshal(value)
	var plain any
	if err == nil {
		err = json.Unmarshal(raw, &plain)
	}
	if err == nil {
		raw, err = json.Marshal(plain)
	}
	if err != nil {
		return "" // no object of an API server is like that
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func withoutDefaults(match *admissionv1.MatchResources) {
	if match == nil {
		return
	}
	match.MatchPolicy, match.NamespaceSelector, match.ObjectSelector = otherPolicy(match.MatchPolicy), selects(match.NamespaceSelector),
		selects(match.ObjectSelector)
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range rules {
			rules[i].Scope = otherScope(rules[i].Scope)
		}
	}
}

func otherPolicy(policy *admissionv1.MatchPolicyType) *admissionv1.MatchPolicyType {
	if policy != nil && *policy == admissionv1.Equivalent {
		return nil
	}
	return policy
}

func otherScope(scope *admissionv1.ScopeType) *admissionv1.ScopeType {
	if scope != nil && *scope == admissionv1.AllScopes {
		return nil
	}
	return scope
}

// byCloud reports whether a cloud added an expression, which it does to every webhook: Azure Kubernetes Service excludes namespaces by labels that no remote
// namespace has, since peers cannot label them, and Autopilot clusters of Google exclude by name those that have the reserved prefixes.
func byCloud(one metav1.LabelSelectorRequirement) bool {
	switch one.Key {
	case corev1.LabelMetadataName: // every namespace has it: DoesNotExist would exclude all
		return one.Operator == metav1.LabelSelectorOpNotIn && !slices.ContainsFunc(one.Values, func(name string) bool {
			return !strings.HasPrefix(name, "kube-") && !strings.HasPrefix(name, "gke-")
		})
	case "control-plane", "kubernetes.azure.com/managedby":
		return one.Operator == metav1.LabelSelectorOpNotIn || one.Operator == metav1.LabelSelectorOpDoesNotExist
	}
	return false
}

// selects returns a selector without what a cloud adds; nil if it selects everything.
func selects(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil {
		return nil
	}
	selector.MatchExpressions = slices.DeleteFunc(selector.MatchExpressions, byCloud)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	return selector
}
