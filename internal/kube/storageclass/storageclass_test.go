// SPDX-License-Identifier: Apache-2.0

package storageclass_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/kube/storageclass"
)

// TestDefault: the youngest of the classes that are marked, as for Kubernetes.
func TestDefault(t *testing.T) {
	class := func(name string, age int, annotations ...string) storagev1.StorageClass {
		one := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(-age), 0), Annotations: map[string]string{}}}
		for _, key := range annotations {
			one.Annotations[key] = "true"
		}
		return one
	}
	marked := func(name, value string) storagev1.StorageClass {
		one := class(name, 1)
		one.Annotations[storageclass.DefaultAnnotation] = value
		return one
	}
	const stable, beta = storageclass.DefaultAnnotation, storageclass.OlderDefaultAnnotation
	for want, classes := range map[string][]storagev1.StorageClass{
		"":      {class("a", 1), class("b", 2), marked("c", "false"), marked("d", "True")},
		"disk":  {class("a", 1), class("disk", 2, stable)},
		"old":   {class("old", 1, beta), class("b", 2)},
		"new":   {class("older", 9, stable), class("new", 1, stable), class("old", 5, beta)},
		"newer": {class("newer", 1, beta), class("older", 9, stable)},
		"x":     {class("y", 1, stable), class("x", 1, stable), class("z", 1, beta)},
	} {
		got := storageclass.Default(classes)
		if got == nil && want != "" || got != nil && got.Name != want {
			t.Errorf("%v, want %q", got, want)
		}
	}
}

// TestOf: the annotation counts before the field, also if it is empty, which is the class without a provisioner.
func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		field       *string
		want        string
		chosen      bool
	}{
		"none":            {},
		"field":           {field: new("disk"), want: "disk", chosen: true},
		"empty field":     {field: new(""), chosen: true},
		"annotation":      {annotations: map[string]string{corev1.BetaStorageClassAnnotation: "old"}, want: "old", chosen: true},
		"both":            {annotations: map[string]string{corev1.BetaStorageClassAnnotation: "old"}, field: new("disk"), want: "old", chosen: true},
		"an empty one":    {annotations: map[string]string{corev1.BetaStorageClassAnnotation: ""}, field: new("disk"), chosen: true},
		"another of them": {annotations: map[string]string{"note": "x"}},
	} {
		got, chosen := storageclass.Of(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: c.field},
		})
		if got != c.want || chosen != c.chosen {
			t.Errorf("%s: %q %t, want %q %t", name, got, chosen, c.want, c.chosen)
		}
	}
}
