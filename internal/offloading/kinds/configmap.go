// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConfigMap is copied as it is.
var ConfigMap = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 40,
	Flag: "configmap", Workers: defaultWorkers,
	Counted: true, Content: true,
	Metadata: &Metadata{Value: "configMaps", Collected: true}, Most: "1000", Total: "10000",
})
