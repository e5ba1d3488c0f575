// SPDX-License-Identifier: Apache-2.0

// Package flows gives the requests of peers a priority level of their own in the API server. It must not know what peers ask for.
package flows

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	flowapply "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/tenant"
)

// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=flowschemas,resourceNames=liqo-peers,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch

// peerFlows is the name of the FlowSchema for requests of peers. The chart creates it.
const peerFlows = "liqo-peers"

// reconciler lists the peers in the rules of their FlowSchema, so that their requests have a priority level of their own in the API server.
type reconciler struct {
	cached client.Reader
	live   client.Reader // only one object, which we may not list
	own    *ssa.Applier
}

// Setup registers the controller of the FlowSchema of peers. Without the FlowSchema, it does nothing.
func Setup(mgr manager.Manager) error {
	r := &reconciler{cached: mgr.GetClient(), live: mgr.GetAPIReader(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerTenant)}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: peerFlows}}}
	})
	isTenant := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.TenantNamespace] == labels.True })
	err := builder.ControllerManagedBy(mgr).Named("peerflows").
		Watches(&corev1.Namespace{}, all, builder.WithPredicates(isTenant, predicate.LabelChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of the flows of peers: %w", err)
	}
	return nil
}

// Reconcile brings the rules up to date.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var live flowv1.FlowSchema
	switch err := r.live.Get(ctx, request.NamespacedName, &live); {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err): // turned off, or Kubernetes before 1.29
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read flow schema %s: %w", request.Name, err)
	}
	var tenants corev1.NamespaceList
	if err := r.cached.List(ctx, &tenants, client.MatchingLabels{labels.TenantNamespace: labels.True}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list tenant namespaces: %w", err)
	}
	intent := flowapply.FlowSchema(request.Name)
	if rules := peerRules(tenants.Items); rules != nil {
		intent.WithSpec(flowapply.FlowSchemaSpec().WithRules(rules))
	}
	if err := r.own.ApplyTo(ctx, intent, &live); err != nil && !apierrors.IsForbidden(err) { // forbidden: it has just been deleted, and we may not create it
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// peerRules matches every request of the peers of these tenants; nil if there are none.
func peerRules(tenants []corev1.Namespace) *flowapply.PolicyRulesWithSubjectsApplyConfiguration {
	var names []string
	for i := range tenants {
		if strings.HasPrefix(tenants[i].Name, "liqo-tenant-") {
			names = append(names, tenants[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	rules := flowapply.PolicyRulesWithSubjects().
		WithResourceRules(flowapply.ResourcePolicyRule().WithVerbs(flowv1.VerbAll).WithAPIGroups(flowv1.APIGroupAll).WithResources(flowv1.ResourceAll).
			WithNamespaces(flowv1.NamespaceEvery).WithClusterScope(true)).
		WithNonResourceRules(flowapply.NonResourcePolicyRule().WithVerbs(flowv1.VerbAll).WithNonResourceURLs(flowv1.NonResourceAll))
	for _, name := range names {
		rules.WithSubjects(flowapply.Subject().WithKind(flowv1.SubjectKindServiceAccount).
			WithServiceAccount(flowapply.ServiceAccountSubject().WithNamespace(name).WithName(tenant.PeerAccount)))
	}
	return rules
}
