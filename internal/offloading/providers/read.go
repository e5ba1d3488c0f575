// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/provider"
)

// List returns the clusters that grant resources to us; if tenant is not empty, only that of this tenant namespace.
func List(ctx context.Context, reader client.Reader, tenant string) (all []provider.Provider, err error) {
	mine := []client.ListOption{client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy}
	if tenant != "" {
		mine = append(mine, client.InNamespace(tenant))
	}
	var requests sharingv1alpha1.ResourceSliceList
	if err := reader.List(ctx, &requests, mine...); err != nil {
		return nil, fmt.Errorf("list resource slices: %w", err)
	}
	byTenant := map[string][]sharingv1alpha1.ResourceSlice{}
	for i := range requests.Items {
		namespace := requests.Items[i].Namespace
		byTenant[namespace] = append(byTenant[namespace], requests.Items[i])
	}
	for namespace, several := range byTenant {
		slice := provider.Served(several)
		fc, err := peers.ForeignCluster(ctx, reader, slice.Spec.ProviderClusterID)
		if err != nil {
			return nil, err
		}
		peer := provider.PeerOf(fc, slice)
		if peer == nil {
			continue
		}
		p := provider.Provider{ID: peer.ClusterID, Name: peer.UniqueName(), Tenant: namespace, NodeName: slice.Spec.NodeName, Leaving: !provider.Wanted(slice)}
		if p.Namespaces, err = MapOf(ctx, reader, namespace, p.ID); err != nil {
			return nil, err
		}
		if peer.ClusterName == "" { // the ForeignCluster is already gone
			if p.Namespaces == nil {
				continue
			}
			p.Name = p.Namespaces.Name
		}
		if p.Labelled, err = NodeOf(ctx, reader, p.NodeName, p.ID); err != nil {
			return nil, err
		}
		var spec discoveryv1alpha1.ForeignClusterSpec
		if fc != nil {
			spec = fc.Spec
		}
		p.Node, p.Hidden = choice.View(p.Labelled, spec.AcceptedLabels)
		if fc != nil {
			p.Foreign = fc.Name
		}
		p.Allows = allowance(ctx, reader, spec.NamespaceSelector)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b provider.Provider) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Places returns, for the webhook of pods, the virtual nodes whose clusters run the pods of an offloaded namespace, and those on which they would wait in vain.
func Places(reader client.Reader) func(context.Context, *offloadingv1alpha1.NamespaceOffloading) (run, vain []string, err error) {
	return func(ctx context.Context, offloading *offloadingv1alpha1.NamespaceOffloading) (run, vain []string, err error) {
		providers, err := List(ctx, reader, "")
		if err != nil {
			return nil, nil, err
		}
		run, vain = provider.Places(offloading, providers)
		return run, vain, nil
	}
}

// allowance returns provider.allows for the selector of a ForeignCluster. Nothing is known of a namespace that is not in the cache, or while the selector
// is invalid: what a provider has then stays there, and nothing is added.
func allowance(ctx context.Context, reader client.Reader, selector *metav1.LabelSelector) func(namespace string) (allowed, known bool) {
	if selector == nil {
		return nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return func(name string) (allowed, known bool) {
		var namespace corev1.Namespace
		if err != nil || reader.Get(ctx, client.ObjectKey{Name: name}, &namespace) != nil {
			return false, false
		}
		return parsed.Matches(k8slabels.Set(namespace.Labels)), true
	}
}

// MapOf returns our NamespaceMap for a cluster; nil if there is none.
func MapOf(ctx context.Context, reader client.Reader, tenant, clusterID string) (*vkv1alpha1.NamespaceMap, error) {
	var all vkv1alpha1.NamespaceMapList
	err := reader.List(ctx, &all, client.InNamespace(tenant), client.MatchingLabels{labels.Replication: "true", labels.RemoteID: clusterID})
	if err != nil {
		return nil, fmt.Errorf("list namespace maps in %s: %w", tenant, err)
	}
	for i := range all.Items {
		if all.Items[i].Labels[labels.Replicated] != "true" {
			return &all.Items[i], nil
		}
	}
	return nil, nil
}

// NodeOf returns the virtual node of a cluster; nil if there is none, or if the node of this name is unmanaged or of another cluster.
func NodeOf(ctx context.Context, reader client.Reader, name, clusterID string) (*corev1.Node, error) {
	var node corev1.Node
	err := reader.Get(ctx, client.ObjectKey{Name: name}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for node %s: %w", name, err)
	case node.Labels[labels.Type] != labels.TypeVirtualNode || node.Labels[labels.RemoteClusterID] != clusterID:
		return nil, nil
	}
	return &node, nil
}

// NodeChanged passes updates of virtual nodes that change labels, readiness, or whether the labels are known.
var NodeChanged = predicate.And(
	predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.Type] == labels.TypeVirtualNode }),
	predicate.Or(predicate.LabelChangedPredicate{}, predicate.Funcs{UpdateFunc: func(change event.UpdateEvent) bool {
		before, was := change.ObjectOld.(*corev1.Node)
		after, ok := change.ObjectNew.(*corev1.Node)
		return !was || !ok || provider.NodeReady(before) != provider.NodeReady(after) || len(before.Status.Conditions) != len(after.Status.Conditions) ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	}}),
)
