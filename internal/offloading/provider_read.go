// SPDX-License-Identifier: Apache-2.0

package offloading

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

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/choice"
)

// peerOf returns the provider of a slice, given its ForeignCluster; nil if the slice gets nothing. Without a ForeignCluster, the slice is being deleted,
// or the event of the ForeignCluster triggers another call. A slice in the tenant namespace of another peer gets nothing, because
// that peer may have written it.
func peerOf(fc *discoveryv1alpha1.ForeignCluster, slice *sharingv1alpha1.ResourceSlice) *discoveryv1alpha1.ClusterIdentity {
	if fc != nil {
		identity := *fc.Spec.ClusterIdentity
		if slice.Namespace != fc.Status.TenantNamespace.Local && slice.Namespace != identity.TenantNamespace() {
			return nil
		}
		return &identity
	}
	if slice.DeletionTimestamp == nil {
		return nil
	}
	return &discoveryv1alpha1.ClusterIdentity{ClusterID: slice.Spec.ProviderClusterID}
}

// providersOf returns the clusters that grant resources to us; if tenant is not empty, only that of this tenant namespace.
func providersOf(ctx context.Context, reader client.Reader, tenant string) (all []provider, err error) {
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
		slice := served(several)
		fc, err := foreignClusterOf(ctx, reader, slice.Spec.ProviderClusterID)
		if err != nil {
			return nil, err
		}
		peer := peerOf(fc, slice)
		if peer == nil {
			continue
		}
		p := provider{id: peer.ClusterID, name: peer.UniqueName(), tenant: namespace, nodeName: slice.Spec.NodeName, leaving: !wanted(slice)}
		if p.namespaces, err = mapOf(ctx, reader, namespace, p.id); err != nil {
			return nil, err
		}
		if peer.ClusterName == "" { // the ForeignCluster is already gone
			if p.namespaces == nil {
				continue
			}
			p.name = p.namespaces.Name
		}
		if p.labelled, err = virtualNode(ctx, reader, p.nodeName, p.id); err != nil {
			return nil, err
		}
		var spec discoveryv1alpha1.ForeignClusterSpec
		if fc != nil {
			spec = fc.Spec
		}
		p.node, p.hidden = choice.View(p.labelled, spec.AcceptedLabels)
		if fc != nil {
			p.foreign = fc.Name
		}
		p.allows = allowance(ctx, reader, spec.NamespaceSelector)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b provider) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// Places returns, for the webhook of pods, the virtual nodes whose clusters run the pods of an offloaded namespace, and those on which they would wait in vain.
func Places(reader client.Reader) func(context.Context, *offloadingv1alpha1.NamespaceOffloading) (run, vain []string, err error) {
	return func(ctx context.Context, offloading *offloadingv1alpha1.NamespaceOffloading) (run, vain []string, err error) {
		providers, err := providersOf(ctx, reader, "")
		if err != nil {
			return nil, nil, err
		}
		run, vain = places(offloading, providers)
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

// mapOf returns our NamespaceMap for a cluster; nil if there is none.
func mapOf(ctx context.Context, reader client.Reader, tenant, clusterID string) (*vkv1alpha1.NamespaceMap, error) {
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

// virtualNode returns the virtual node of a cluster; nil if there is none, or if the node of this name is unmanaged or of another cluster.
func virtualNode(ctx context.Context, reader client.Reader, name, clusterID string) (*corev1.Node, error) {
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
