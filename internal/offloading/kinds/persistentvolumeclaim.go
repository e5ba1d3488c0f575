// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/apis/labels"
)

// PersistentVolumeClaim holds the data of a claim of this cluster. Domain storage writes it.
var PersistentVolumeClaim = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "persistentvolumeclaims"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "persistentvolumeclaims"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 60,
	Events: true, Counted: true, Content: true, Data: true,
	Rights:   Rights{Bounded: true, Elsewhere: []string{"list"}},
	Metadata: &Metadata{Value: "persistentVolumeClaims", Annotations: []string{labels.VirtualVolume}}, Judged: true, Most: "100", Total: "500",
})
