// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// ConfigMap is copied as it is.
var ConfigMap = row(Kind{
	Local:    Resource{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"},
	Remote:   Resource{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"},
	Register: []func(*runtime.Scheme) error{corev1.AddToScheme}, Order: 40,
	Flag: "configmap", Workers: defaultWorkers,
	Counted: true, Content: true,
	Metadata: &Metadata{Value: "configMaps", Collected: true}, Most: "1000", Total: "10000",
	Copy: copied(copyConfigMap), ByReference: true,
	RemoteName: project.ConfigMapName, LocalName: project.LocalConfigMapName,
})

func copyConfigMap(m project.NamespaceMapping, local *corev1.ConfigMap) *coreapply.ConfigMapApplyConfiguration {
	remote := coreapply.ConfigMap(project.ConfigMapName(m, local.Name), m.Remote).
		WithLabels(m.LabelsOf(local)).WithAnnotations(m.AnnotationsOf(local)).
		WithData(local.Data).WithBinaryData(local.BinaryData)
	remote.Immutable = local.Immutable
	return remote
}
