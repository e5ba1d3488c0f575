// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// kind is one kind of object that is replicated.
type kind struct {
	// name is for messages.
	name   string
	object func() client.Object
	list   func() client.ObjectList
	// check validates an object of the provider before it is decoded: decoding some values would take hours.
	check func(untyped map[string]any) error
	// specIntent is the intent for the copy: the spec, with the copy's labels and annotations.
	specIntent func(original client.Object, copied meta) runtime.ApplyConfiguration
	// statusIntent is the intent for the original's status: the fields that the receiver owns; nil if it has set none yet.
	statusIntent func(original, copied client.Object) runtime.ApplyConfiguration
	// held: the object stays until its copy is deleted (finalizer crdReplicator.liqo.io). Otherwise the copy is deleted when
	// a connection finds the object gone, or with the tenant in the provider.
	held bool
	// mutual: the provider's objects of the kind that are addressed to us are copied here, and their status there.
	mutual bool
	// optional: a provider that does not know the kind, or does not let us read it, is treated as having no such objects.
	optional bool
}

// catalog lists the kinds. A new kind needs a row here, its two functions in their own file, and rights in replicator.go
// and in the cluster roles liqo-remote-peering-basic and liqo-remote-peering-incoming.
func catalog(o Options) []kind {
	kinds := []kind{
		{
			name:   "ResourceSlice",
			held:   true,
			object: func() client.Object { return &sharingv1alpha1.ResourceSlice{} },
			list:   func() client.ObjectList { return &sharingv1alpha1.ResourceSliceList{} },
			check:  sliceCheck,
			specIntent: func(original client.Object, copied meta) runtime.ApplyConfiguration {
				return sliceSpecIntent(original.(*sharingv1alpha1.ResourceSlice), copied)
			},
			statusIntent: func(original, copied client.Object) runtime.ApplyConfiguration {
				if config := sliceStatusIntent(original.(*sharingv1alpha1.ResourceSlice), copied.(*sharingv1alpha1.ResourceSlice)); config != nil {
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
		specIntent: func(original client.Object, copied meta) runtime.ApplyConfiguration {
			return namespacesSpecIntent(original.(*vkv1alpha1.NamespaceMap), copied)
		},
		statusIntent: func(original, copied client.Object) runtime.ApplyConfiguration {
			if config := namespacesStatusIntent(original.(*vkv1alpha1.NamespaceMap), copied.(*vkv1alpha1.NamespaceMap)); config != nil {
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
			specIntent: func(original client.Object, copied meta) runtime.ApplyConfiguration {
				return networkSpecIntent(original.(*netv1alpha1.NetworkConfig), copied)
			},
			statusIntent: func(original, copied client.Object) runtime.ApplyConfiguration {
				if config := networkStatusIntent(original.(*netv1alpha1.NetworkConfig), copied.(*netv1alpha1.NetworkConfig)); config != nil {
					return config
				}
				return nil
			},
		})
	}
	return kinds
}
