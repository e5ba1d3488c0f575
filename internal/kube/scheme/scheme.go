// SPDX-License-Identifier: Apache-2.0

// Package scheme makes the schemes of processes. It must not know what a process does with its kinds. TestAll proves it.
package scheme

import (
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// Of returns a scheme with the kinds that these functions add.
func Of(add ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	made, builder := runtime.NewScheme(), runtime.SchemeBuilder(add)
	return made, builder.AddToScheme(made)
}

// All has the kinds of Kubernetes and of Liqo, and those of further functions.
func All(add ...func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	return Of(append(add, clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme,
		offloadingv1alpha1.AddToScheme, storagev1alpha1.AddToScheme, vkv1alpha1.AddToScheme)...)
}
