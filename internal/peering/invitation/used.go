// SPDX-License-Identifier: Apache-2.0

package invitation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/peering/auth"
)

// UsedSince is when the tunnel to the cluster that registered with a token came up; zero if there is none. pinned reads the keys of peers in
// the install namespace, clusters ForeignClusters.
func UsedSince(ctx context.Context, pinned, clusters client.Reader, namespace, tokenID string) (since time.Time, _ error) {
	var pins corev1.ConfigMapList
	if err := pinned.List(ctx, &pins, client.InNamespace(namespace), client.MatchingLabels{labels.PinnedKey: labels.True}); err != nil {
		return since, fmt.Errorf("list the keys of peers: %w", err)
	}
	var all discoveryv1alpha1.ForeignClusterList
	if err := clusters.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return since, fmt.Errorf("list foreign clusters: %w", err)
	}
	for i := range pins.Items {
		data := pins.Items[i].Data
		consumer := discoveryv1alpha1.OwnerOf(all.Items, data[auth.PinClusterID])
		if data[auth.PinTokenID] != tokenID || consumer == nil {
			continue
		}
		if at := slices.IndexFunc(consumer.Status.PeeringConditions, func(c discoveryv1alpha1.PeeringCondition) bool {
			return c.Type == discoveryv1alpha1.NetworkStatus && c.Status == discoveryv1alpha1.StatusEstablished
		}); at >= 0 {
			return consumer.Status.PeeringConditions[at].LastTransitionTime.Time, nil
		}
	}
	return since, nil
}
