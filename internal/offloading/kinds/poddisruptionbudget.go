// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodDisruptionBudget has in the peer the number of pods there that must stay healthy. Earlier peers and some administrators grant no rights on it, so that it is no content
// that users are asked about.
var PodDisruptionBudget = row(Kind{
	Local:    Resource{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets"},
	Remote:   Resource{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets"},
	Register: []func(*runtime.Scheme) error{policyv1.AddToScheme}, Order: 80,
	Flag: "poddisruptionbudget", Workers: defaultWorkers,
	Counted: true,
})
