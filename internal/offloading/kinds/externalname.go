// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// ExternalName returns a Service whose external name is right in the peer: the name of a Service of this cluster has the remote namespace
// there. remoteOf returns the remote namespace of a namespace of this cluster. The error is ErrRefused if that Service is not in the peer. A
// name below the domain of another cluster stays.
func ExternalName(m project.NamespaceMapping, local *corev1.Service, remoteOf func(namespace string) (string, bool)) (*corev1.Service, error) {
	if local.Spec.Type != corev1.ServiceTypeExternalName {
		return local, nil
	}
	parts := strings.Split(strings.TrimSuffix(local.Spec.ExternalName, "."), ".")
	svc := slices.Index(parts, "svc")
	if svc < 2 {
		return local, nil
	}
	namespace, domain := parts[svc-1], strings.Join(parts[svc+1:], ".")
	remote, offloaded := remoteOf(namespace)
	switch {
	case m.Domain != "" && domain != "" && domain != m.Domain && domain != project.DefaultDomain:
		return local, nil
	case offloaded:
		parts[svc-1] = remote
		named := local.DeepCopy()
		named.Spec.ExternalName = strings.Join(parts, ".")
		return named, nil
	case domain != "" && domain != project.DefaultDomain:
		return local, nil // a name of the public network may look like that
	}
	return nil, fmt.Errorf("%w: the externalName %s is that of a Service in namespace %s of this cluster, which is not offloaded to that cluster, so pods "+
		"there do not find it; offload the namespace, too",
		project.ErrRefused, local.Spec.ExternalName, namespace)
}
