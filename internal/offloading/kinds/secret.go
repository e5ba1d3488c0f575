// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Secret is copied as it is, but for types that no pod needs.
var Secret = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 50,
	Flag: "secret", Workers: defaultWorkers,
	Counted: true, Content: true,
	Metadata: &Metadata{Value: "secrets", Collected: true}, Most: "5000", Total: "20000",
})
