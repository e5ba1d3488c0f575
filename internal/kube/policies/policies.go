// SPDX-License-Identifier: Apache-2.0

// Package policies checks that the ValidatingAdmissionPolicies of the chart are in force. RBAC cannot express what they limit, so without them a peer
// has more rights than documented.
//
// It must not know what the policies limit, nor what follows from a missing one. The proof is TestMissing, and TestAttackM8 in deployments/liqo/integration.
package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list;watch

// Names are the policies of the chart that limit peers and our own processes.
var Names = []string{
	"liqo-controller-manager", "liqo-virtual-nodes", "liqo-virtual-pods", "liqo-peers", "liqo-peers-remote-namespaces", "liqo-remote-namespaces",
	"liqo-remote-namespaces-pods", "liqo-peers-objects", "liqo-peers-ingress-classes", "liqo-peers-pods", "liqo-peers-claims", "liqo-volumes", "liqo-moves", "liqo-virtual-tenants", "liqo-virtual-kubelets",
}

// Guard knows whether all policies are in force. A nil Guard requires none.
type Guard struct{ cached client.Reader }

// New starts to watch policies and their bindings, with the cache of the manager.
func New(ctx context.Context, mgr manager.Manager) (*Guard, error) {
	for _, kind := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		if _, err := mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return nil, fmt.Errorf("watch admission policies: %w; Kubernetes before 1.30 has none, see the value policies of the chart", err)
		}
	}
	return Reading(mgr.GetCache()), nil
}

// Reading returns a Guard that reads policies and bindings from a cache.
func Reading(cached client.Reader) *Guard { return &Guard{cached: cached} }

// Watch makes a controller follow policies and their bindings. A nil Guard follows none.
func (g *Guard) Watch(controller *builder.Builder, handler handler.EventHandler) {
	if g != nil {
		changed := builder.WithPredicates(predicate.GenerationChangedPredicate{}) // the API server writes their status
		controller.Watches(&admissionv1.ValidatingAdmissionPolicy{}, handler, changed).Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, handler, changed)
	}
}

// Missing returns in one sentence which policies are not in force; nothing if all are.
func (g *Guard) Missing(ctx context.Context) (string, error) {
	if g == nil {
		return "", nil
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := g.cached.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list admission policies: %w", err)
	}
	if err := g.cached.List(ctx, &bindings, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list bindings of admission policies: %w", err)
	}
	return missing(policies.Items, bindings.Items), nil
}

// missing reports the policies that do not exist or do not refuse what they find everywhere.
func missing(policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding) string {
	var names []string
	for _, name := range Names {
		exists := slices.ContainsFunc(policies, func(one admissionv1.ValidatingAdmissionPolicy) bool {
			return one.Name == name && one.DeletionTimestamp == nil && len(one.Spec.Validations) > 0 && (one.Spec.FailurePolicy == nil || *one.Spec.FailurePolicy == admissionv1.Fail)
		})
		bound := slices.ContainsFunc(bindings, func(one admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return one.Spec.PolicyName == name && one.DeletionTimestamp == nil && one.Spec.MatchResources == nil && slices.Contains(one.Spec.ValidationActions, admissionv1.Deny)
		})
		if !exists || !bound {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the cluster has no ValidatingAdmissionPolicy with a binding that denies for: %s; `liqoctl upgrade` creates them again", strings.Join(names, ", "))
}
