// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Service has the same selector and ports in the peer, and addresses of its own.
var Service = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("Service"), "services"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("Service"), "services"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 20,
	Flag: "service", Workers: defaultWorkers, Exposes: true,
	Events: true, Counted: true, Content: true,
	Metadata: &Metadata{Value: "services", Annotations: []string{"service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"}}, Most: "500", Total: "1000",
})
