// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// EndpointSlice has the endpoints of a Service that the peer does not find itself.
var EndpointSlice = row(Kind{
	Local:    Resource{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices"},
	Remote:   Resource{vkv1alpha1.GroupVersion.WithKind("ShadowEndpointSlice"), "shadowendpointslices"},
	Register: []func(*runtime.Scheme) error{discoveryv1.AddToScheme, vkv1alpha1.AddToScheme}, Order: 30,
	Flag: "endpointslice", Workers: 10, NeedsIPs: true,
	Events: true, Counted: true,
})
