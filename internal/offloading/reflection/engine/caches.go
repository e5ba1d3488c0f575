// SPDX-License-Identifier: Apache-2.0

package engine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ssa"
)

// What the caches of the loops keep of an object.

// TrimLocal drops what is never reflected.
func TrimLocal(object client.Object) {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
}

// TrimRemote replaces the managed fields by a fingerprint of ours, which shows whether anyone changed them. It sets the kind, which metadata lacks.
func TrimRemote(kind schema.GroupVersionKind) func(client.Object) {
	return func(object client.Object) {
		ssa.Fingerprint(object, labels.OwnerReflection)
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
}

// Metadata returns a constructor of lists that hold only the metadata of a kind.
func Metadata(of schema.GroupVersionKind) func() client.ObjectList {
	return func() client.ObjectList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
		return list
	}
}

// Either returns the object after a change, or the one before if it was deleted.
func Either(before, after client.Object) client.Object {
	if after != nil {
		return after
	}
	return before
}
