// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Remembers reports whether something about a tenant's namespace is still in memory.
func (t *Tenants) Remembers(namespace string) bool {
	return t.applier.Remembers(corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: namespace}) ||
		t.applier.Remembers(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), client.ObjectKey{Namespace: namespace, Name: PeerAccount})
}
