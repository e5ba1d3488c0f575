// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// others are the unique names of all consumers but one.
func (r *twinReconciler) others(ctx context.Context, tenant string) (names []string, err error) {
	var all corev1.NamespaceList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.TenantNamespace: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list tenant namespaces: %w", err)
	}
	for i := range all.Items {
		if name, is := strings.CutPrefix(all.Items[i].Name, tenantPrefix); is && all.Items[i].Name != tenant && name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}
