// SPDX-License-Identifier: Apache-2.0

// Package policies checks that the ValidatingAdmissionPolicies and webhooks of the chart are in force, as the chart made them. RBAC cannot express what they
// limit, so without them a peer has more rights than documented.
//
// It must not know what they limit, nor what follows from a missing one. The proof is TestMissing, and TestAttackM8 and TestAttackNL3 in
// deployments/liqo/integration.
package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=liqo,verbs=list;watch

// Names are the policies of the chart that limit peers and our own processes, whatever its values are.
var Names = []string{
	"liqo-controller-manager", "liqo-virtual-nodes", "liqo-virtual-pods", "liqo-peers", "liqo-peers-remote-namespaces", "liqo-remote-namespaces",
	"liqo-remote-namespaces-pods", "liqo-peers-objects", "liqo-peers-ingress-classes", "liqo-peers-ingress-backends",
	"liqo-peers-external-names", "liqo-peers-service-names", "liqo-peers-budgets", "liqo-peers-pods", "liqo-peers-claims", "liqo-volumes",
	"liqo-moves", "liqo-virtual-tenants", "liqo-virtual-kubelets", "liqo-node-reports",
}

// Webhooks is the ValidatingWebhookConfiguration of the chart. Its digest covers all webhooks in it, so a missing one is a difference. The mutating webhooks of
// the chart are a convenience for users, and limit no peer.
const Webhooks = "liqo"

// Guard knows whether all policies and webhooks are in force. A nil Guard requires none.
type Guard struct {
	cached   client.Reader
	required []string

	mu     sync.Mutex
	judged map[types.UID]judgement
}

// judgement is whether an object was intact at a version: the digests of all take longer than the admission of a pod may.
type judgement struct {
	version string
	intact  bool
}

// Caches are the objects that the cache of a Guard needs to have. The webhooks of others are not read.
func Caches() map[client.Object]cache.ByObject {
	ours := klabels.SelectorFromSet(klabels.Set{labels.AppPartOf: labels.PartOf})
	return map[client.Object]cache.ByObject{
		&admissionv1.ValidatingAdmissionPolicy{}:        {Label: ours},
		&admissionv1.ValidatingAdmissionPolicyBinding{}: {Label: ours},
		&admissionv1.ValidatingWebhookConfiguration{}:   {Field: fields.OneTermEqualSelector("metadata.name", Webhooks)},
	}
}

// New starts to watch with the cache of the manager, which has [Caches]. further are policies that only some values of the chart ask for.
func New(ctx context.Context, mgr manager.Manager, further ...string) (*Guard, error) {
	for kind := range Caches() {
		if _, err := mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return nil, fmt.Errorf("watch admission policies and webhooks: %w; Kubernetes before 1.30 has no policies, see the value policies of the chart", err)
		}
	}
	return Reading(mgr.GetCache(), further...), nil
}

// Reading returns a Guard that reads from a cache.
func Reading(cached client.Reader, further ...string) *Guard {
	return &Guard{cached: cached, required: slices.Concat(Names, further)}
}

// Watch makes a controller follow policies, their bindings and the webhooks. A nil Guard follows none.
func (g *Guard) Watch(controller *builder.Builder, handler handler.EventHandler) {
	if g == nil {
		return
	}
	// The API server writes their status. The digest is an annotation.
	changed := builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	for kind := range Caches() {
		controller.Watches(kind, handler, changed)
	}
}

// Missing returns in one sentence what is not in force; nothing if all is.
func (g *Guard) Missing(ctx context.Context) (string, error) {
	if g == nil {
		return "", nil
	}
	var all rules
	for what, list := range map[string]client.ObjectList{
		"admission policies": &all.policies, "bindings of admission policies": &all.bindings, "validating webhooks": &all.webhooks,
	} {
		if err := g.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("list %s: %w", what, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.judged
	g.judged = make(map[types.UID]judgement, len(before))
	return missing(g.required, &all, func(object client.Object) bool {
		known, found := before[object.GetUID()]
		if !found || known.version != object.GetResourceVersion() {
			known = judgement{version: object.GetResourceVersion(), intact: intact(object)}
		}
		g.judged[object.GetUID()] = known
		return known.intact
	}), nil
}

// rules are what the cluster has.
type rules struct {
	policies admissionv1.ValidatingAdmissionPolicyList
	bindings admissionv1.ValidatingAdmissionPolicyBindingList
	webhooks admissionv1.ValidatingWebhookConfigurationList
}

// missing reports what does not exist, is not what the chart made, or does not refuse what it finds everywhere.
func missing(required []string, all *rules, intact func(client.Object) bool) string {
	var absent, changed, unbound []string
	judge := func(name string, objects ...client.Object) {
		switch {
		case len(objects) == 0 || objects[0].GetDeletionTimestamp() != nil:
			absent = append(absent, name)
		case !intact(objects[0]):
			changed = append(changed, name)
		}
	}
	for _, name := range required {
		var found []client.Object
		for i := range all.policies.Items {
			if all.policies.Items[i].Name == name {
				found = append(found, &all.policies.Items[i])
			}
		}
		judge(name, found...)
		bound := false
		for i := range all.bindings.Items {
			one := &all.bindings.Items[i]
			bound = bound || one.Spec.PolicyName == name && one.DeletionTimestamp == nil && slices.Contains(one.Spec.ValidationActions, admissionv1.Deny) && intact(one)
		}
		if !bound {
			unbound = append(unbound, name)
		}
	}
	var hooks []client.Object
	for i := range all.webhooks.Items {
		if all.webhooks.Items[i].Name == Webhooks {
			hooks = append(hooks, &all.webhooks.Items[i])
		}
	}
	judge("ValidatingWebhookConfiguration "+Webhooks, hooks...)
	var parts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"missing: ", absent}, {"changed after the chart made them: ", changed}, {"without the chart's binding that denies: ", unbound}} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+strings.Join(part.names, ", "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "the admission policies and webhooks that limit peers are not in force; " + strings.Join(parts, "; ") +
		"; delete what was changed, with its bindings, and run `liqoctl upgrade`, which creates all again"
}
