// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodDisruptionBudget has in the peer the number of pods there that must stay healthy. Earlier peers and some administrators grant no rights on it, so that it is no content
// that users are asked about.
var PodDisruptionBudget = row(Kind{
	Local:    Resource{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets"},
	Remote:   Resource{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets"},
	Register: []func(*runtime.Scheme) error{policyv1.AddToScheme}, Order: 80,
	Flag: "poddisruptionbudget", Workers: defaultWorkers, Exposes: true,
	Counted: true,
	// Without the value, a peer still finds and deletes those that it has written.
	Rights: Rights{Bounded: true, Value: "budgets", Without: []string{"get", "list", "watch", "delete"}},
	Most:   "100", Total: "500",
	// Each keeps nodes from being drained, which administrators of the peer may overrule (docs/peering.md). Its form is the one that Kubernetes evaluates for pods whose
	// controller has no scale. The metadata gives no orders: reflection writes only its own labels.
	Guard: &Guard{Name: "budgets", Validations: []Validation{
		{
			Expression: `!has(object.spec.maxUnavailable) && has(object.spec.minAvailable) && type(object.spec.minAvailable) == int`,
			Message:    "a disruption budget of a peer must have minAvailable as a number, since Kubernetes evaluates no other form for its pods",
		},
		{ // So it keeps no pods of others from being evicted that an administrator runs in the namespace.
			Expression: `object.spec.?selector.?matchLabels[?"virtualkubelet.liqo.io/origin"].orValue("") == namespaceObject.metadata.labels["liqo.io/remote-cluster-id"]`,
			MessageExpression: `"a disruption budget of a peer must select its own pods, by the label virtualkubelet.liqo.io/origin: " + ` +
				`namespaceObject.metadata.labels["liqo.io/remote-cluster-id"]`,
		},
		{
			Expression: `!has(object.metadata.labels) || object.metadata.labels.all(key, key in ["virtualkubelet.liqo.io/origin", "virtualkubelet.liqo.io/destination"] ` +
				`|| request.operation == "UPDATE" && has(oldObject.metadata.labels) && key in oldObject.metadata.labels && oldObject.metadata.labels[key] == object.metadata.labels[key])`,
			Message: "a disruption budget of a peer must have no labels but virtualkubelet.liqo.io/origin and virtualkubelet.liqo.io/destination",
		},
		{
			Expression: `!has(object.metadata.annotations) || object.metadata.annotations.all(key, ` +
				`request.operation == "UPDATE" && has(oldObject.metadata.annotations) && key in oldObject.metadata.annotations && ` +
				`oldObject.metadata.annotations[key] == object.metadata.annotations[key])`,
			Message: "a disruption budget of a peer must have no annotations",
		},
		{
			Expression: `!has(object.metadata.finalizers) || object.metadata.finalizers.all(one, request.operation == "UPDATE" && has(oldObject.metadata.finalizers) && ` +
				`one in oldObject.metadata.finalizers)`,
			Message: "a peer may not hold a namespace of this cluster with a finalizer",
		},
	}},
})
