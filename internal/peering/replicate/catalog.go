// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// kind is one kind of object that crosses. The two functions decide what crosses and do nothing else.
type kind struct {
	// name is what people call it.
	name   string
	object func() client.Object
	list   func() client.ObjectList
	// check looks at an object of the provider before its values are understood: to understand some would cost hours.
	check func(untyped map[string]any) error
	// there is the intent for the copy: the spec, under the copy's labels and annotations.
	there func(local client.Object, copied meta) runtime.ApplyConfiguration
	// here is the intent for the local object's status: the fields that are the provider's; nil if it has said nothing yet.
	here func(local, remote client.Object) runtime.ApplyConfiguration
}

// catalog lists the kinds. A new one is a row here, with its two functions in a file of its own, and a line
// of rights in replicator.go and in the cluster role liqo-remote-peering-basic.
func catalog() []kind {
	return []kind{
		{
			name:   "ResourceSlice",
			object: func() client.Object { return &sharingv1alpha1.ResourceSlice{} },
			list:   func() client.ObjectList { return &sharingv1alpha1.ResourceSliceList{} },
			check:  sliceCheck,
			there: func(local client.Object, copied meta) runtime.ApplyConfiguration {
				return sliceThere(local.(*sharingv1alpha1.ResourceSlice), copied)
			},
			here: func(local, remote client.Object) runtime.ApplyConfiguration {
				if config := sliceHere(local.(*sharingv1alpha1.ResourceSlice), remote.(*sharingv1alpha1.ResourceSlice)); config != nil {
					return config
				}
				return nil
			},
		},
	}
}
