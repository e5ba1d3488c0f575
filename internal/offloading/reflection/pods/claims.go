// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// held returns why a new pod must wait for its data.
func (p *Pods) held(ctx context.Context, local *corev1.Pod) error {
	if p.claims == nil {
		return nil
	}
	return p.claims.Held(ctx, local)
}
