// SPDX-License-Identifier: Apache-2.0

// Package storageclass knows which StorageClass Kubernetes takes for a claim.
//
// The package is pure. It must not know why the class is asked for, nor read one. TestDefault and TestOf prove it.
package storageclass

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const (
	// DefaultAnnotation marks a class that claims without a class get. Kubernetes heeds the older one as well.
	DefaultAnnotation, OlderDefaultAnnotation = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"
)

// IsDefault reports whether a class is marked as one that claims without a class get.
func IsDefault(class *storagev1.StorageClass) bool {
	return class.Annotations[DefaultAnnotation] == "true" || class.Annotations[OlderDefaultAnnotation] == "true"
}

// Default returns the class that Kubernetes gives to claims without one: the youngest of those that are marked, by name if they are of one age; nil if none is.
func Default(classes []storagev1.StorageClass) (chosen *storagev1.StorageClass) {
	for i := range classes {
		one := &classes[i]
		if IsDefault(one) && (chosen == nil || younger(one, chosen)) {
			chosen = one
		}
	}
	return chosen
}

func younger(a, b *storagev1.StorageClass) bool {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// Of returns the name of the class of a claim; false if the claim has none yet, so that it gets the default one. The annotation that chose it before
// the field did still counts for Kubernetes.
func Of(claim *corev1.PersistentVolumeClaim) (name string, chosen bool) {
	if name, is := claim.Annotations[corev1.BetaStorageClassAnnotation]; is {
		return name, true
	}
	if claim.Spec.StorageClassName == nil {
		return "", false
	}
	return *claim.Spec.StorageClassName, true
}
