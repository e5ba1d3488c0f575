// SPDX-License-Identifier: Apache-2.0

// Package kinds decides what the clusters of a peering carry to each other: a file for each kind of object with the fields that are sent, the checks
// of what comes back, and how much of it is accepted; copies.go has the labels of originals and copies. It must not know when and over which
// connection.
package kinds

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// Kind is one kind of object that is replicated.
type Kind struct {
	// Name is for messages.
	Name   string
	Object func() client.Object
	List   func() client.ObjectList
	// check validates an object of the provider before it is decoded: decoding some values would take hours.
	check func(untyped map[string]any) error
	// SpecIntent is the intent for the copy: the spec, with the copy's labels and annotations.
	SpecIntent func(original client.Object, copied Meta) runtime.ApplyConfiguration
	// StatusIntent is the intent for the original's status: the fields that the receiver owns; nil if it has set none yet.
	StatusIntent func(original, copied client.Object) runtime.ApplyConfiguration
	// Held: the object stays until its copy is deleted (finalizer crdReplicator.liqo.io). Otherwise the copy is deleted when
	// a connection finds the object gone, or with the tenant in the provider.
	Held bool
	// Mutual: the provider's objects of the kind that are addressed to us are copied here, and their status there.
	Mutual bool
	// Optional: a provider that does not know the kind, or does not let us read it, is treated as having no such objects.
	Optional bool
}

// All lists the kinds. network: the clusters exchange NetworkConfigs. A new kind needs a row here, its functions in their own file, and rights in replicator.go
// and in the cluster roles liqo-remote-peering-basic and liqo-remote-peering-incoming.
func All(network bool) []Kind {
	kinds := []Kind{
		{
			Name:   "ResourceSlice",
			Held:   true,
			Object: func() client.Object { return &sharingv1alpha1.ResourceSlice{} },
			List:   func() client.ObjectList { return &sharingv1alpha1.ResourceSliceList{} },
			check:  sliceCheck,
			SpecIntent: func(original client.Object, copied Meta) runtime.ApplyConfiguration {
				return sliceSpecIntent(original.(*sharingv1alpha1.ResourceSlice), copied)
			},
			StatusIntent: func(original, copied client.Object) runtime.ApplyConfiguration {
				if config := sliceStatusIntent(original.(*sharingv1alpha1.ResourceSlice), copied.(*sharingv1alpha1.ResourceSlice)); config != nil {
					return config
				}
				return nil
			},
		},
	}
	kinds = append(kinds, Kind{
		Name: "NamespaceMap",
		Held: true, Optional: true,
		Object: func() client.Object { return &vkv1alpha1.NamespaceMap{} },
		List:   func() client.ObjectList { return &vkv1alpha1.NamespaceMapList{} },
		check:  namespacesCheck,
		SpecIntent: func(original client.Object, copied Meta) runtime.ApplyConfiguration {
			return namespacesSpecIntent(original.(*vkv1alpha1.NamespaceMap), copied)
		},
		StatusIntent: func(original, copied client.Object) runtime.ApplyConfiguration {
			if config := namespacesStatusIntent(original.(*vkv1alpha1.NamespaceMap), copied.(*vkv1alpha1.NamespaceMap)); config != nil {
				return config
			}
			return nil
		},
	})
	if network {
		kinds = append(kinds, Kind{
			Name:   "NetworkConfig",
			Mutual: true, Optional: true,
			Object: func() client.Object { return &netv1alpha1.NetworkConfig{} },
			List:   func() client.ObjectList { return &netv1alpha1.NetworkConfigList{} },
			check:  networkCheck,
			SpecIntent: func(original client.Object, copied Meta) runtime.ApplyConfiguration {
				return NetworkSpecIntent(original.(*netv1alpha1.NetworkConfig), copied)
			},
			StatusIntent: func(original, copied client.Object) runtime.ApplyConfiguration {
				if config := NetworkStatusIntent(original.(*netv1alpha1.NetworkConfig), copied.(*netv1alpha1.NetworkConfig)); config != nil {
					return config
				}
				return nil
			},
		})
	}
	return kinds
}
