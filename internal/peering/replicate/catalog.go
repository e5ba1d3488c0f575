// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
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
	there func(original client.Object, copied meta) runtime.ApplyConfiguration
	// here is the intent for the original's status: the fields that are the receiver's; nil if it has said nothing yet.
	here func(original, copied client.Object) runtime.ApplyConfiguration
	// held: the object ends after its copy (finalizer crdReplicator.liqo.io). Otherwise the copy goes when a link finds
	// the object gone, or with the tenant over there.
	held bool
	// mutual: the provider's own objects of the kind, addressed to us, are copied here, and their status goes there.
	mutual bool
	// optional: a provider that does not know the kind, or does not let us read it, is one without such objects.
	optional bool
}

// catalog lists the kinds. A new one is a row here, with its two functions in a file of its own, and a line
// of rights in replicator.go and in the cluster role liqo-remote-peering-basic.
func catalog(o Options) []kind {
	kinds := []kind{
		{
			name:   "ResourceSlice",
			held:   true,
			object: func() client.Object { return &sharingv1alpha1.ResourceSlice{} },
			list:   func() client.ObjectList { return &sharingv1alpha1.ResourceSliceList{} },
			check:  sliceCheck,
			there: func(original client.Object, copied meta) runtime.ApplyConfiguration {
				return sliceThere(original.(*sharingv1alpha1.ResourceSlice), copied)
			},
			here: func(original, copied client.Object) runtime.ApplyConfiguration {
				if config := sliceHere(original.(*sharingv1alpha1.ResourceSlice), copied.(*sharingv1alpha1.ResourceSlice)); config != nil {
					return config
				}
				return nil
			},
		},
	}
	kinds = append(kinds, kind{
		name: "NamespaceMap",
		held: true, optional: true,
		object: func() client.Object { return &vkv1alpha1.NamespaceMap{} },
		list:   func() client.ObjectList { return &vkv1alpha1.NamespaceMapList{} },
		check:  namespacesCheck,
		there: func(original client.Object, copied meta) runtime.ApplyConfiguration {
			return namespacesThere(original.(*vkv1alpha1.NamespaceMap), copied)
		},
		here: func(original, copied client.Object) runtime.ApplyConfiguration {
			if config := namespacesHere(original.(*vkv1alpha1.NamespaceMap), copied.(*vkv1alpha1.NamespaceMap)); config != nil {
				return config
			}
			return nil
		},
	})
	if o.Network {
		kinds = append(kinds, kind{
			name:   "NetworkConfig",
			mutual: true, optional: true,
			object: func() client.Object { return &netv1alpha1.NetworkConfig{} },
			list:   func() client.ObjectList { return &netv1alpha1.NetworkConfigList{} },
			check:  networkCheck,
			there: func(original client.Object, copied meta) runtime.ApplyConfiguration {
				return networkThere(original.(*netv1alpha1.NetworkConfig), copied)
			},
			here: func(original, copied client.Object) runtime.ApplyConfiguration {
				if config := networkHere(original.(*netv1alpha1.NetworkConfig), copied.(*netv1alpha1.NetworkConfig)); config != nil {
					return config
				}
				return nil
			},
		})
	}
	return kinds
}
