// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Ingress has the same rules in the peer, for the class that is the default there.
var Ingress = row(Kind{
	Local:    Resource{networkingv1.SchemeGroupVersion.WithKind("Ingress"), "ingresses"},
	Remote:   Resource{networkingv1.SchemeGroupVersion.WithKind("Ingress"), "ingresses"},
	Register: []func(*runtime.Scheme) error{networkingv1.AddToScheme}, Order: 70,
	Flag: "ingress", Workers: defaultWorkers,
	Events: true, Counted: true, Content: true,
	Metadata: &Metadata{Value: "ingresses"}, Most: "100", Total: "500",
})
