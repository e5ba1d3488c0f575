// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of these kinds. SchemeGroupVersion is the name generated code expects.
var (
	GroupVersion       = schema.GroupVersion{Group: "net.liqo.io", Version: "v1alpha1"}
	SchemeGroupVersion = GroupVersion
)

// AddToScheme registers the kinds of this group.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NetworkConfig{}, &NetworkConfigList{},
		&TunnelEndpoint{}, &TunnelEndpointList{},
		&IPMapping{}, &IPMappingList{},
		&NodeReport{}, &NodeReportList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
