// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=get;list;watch

// architectures returns the architectures of this cluster that the peer of a remote namespace has been reported, the most frequent first. It reads caches only.
func (r *reconciler) architectures(ctx context.Context, namespace string) ([]string, error) {
	metadata, err := r.options.RemoteNamespaces.Metadata(ctx, namespace)
	if err != nil || metadata == nil {
		return nil, err
	}
	tenant, _, _ := strings.Cut(metadata.Annotations[labels.ManagedByNamespaceMap], "/")
	if tenant == "" {
		return nil, nil
	}
	var all sharingv1alpha1.ResourceSliceList
	if err := r.cached.List(ctx, &all, client.InNamespace(tenant), client.MatchingLabels{labels.Replicated: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list resource slices in %s: %w", tenant, err)
	}
	for i := range all.Items { // all have the same
		if reported := all.Items[i].Status.Architectures; len(reported) > 0 {
			return slices.Clone(reported), nil
		}
	}
	return nil, nil
}
