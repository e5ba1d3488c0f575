// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// Pod is written by the controller of the peer, from a ShadowPod. Package pods reflects both directions.
var Pod = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("Pod"), "pods"},
	Remote:   Resource{vkv1alpha1.GroupVersion.WithKind("ShadowPod"), "shadowpods"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme, vkv1alpha1.AddToScheme}, Order: 10,
	Events: true, Counted: true, Content: true,
	References: referring(podspec.References),
})
