// SPDX-License-Identifier: Apache-2.0

package data

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

func volume(name, of string) *corev1.PersistentVolume {
	one := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Name: "claim"}}}
	if of != "" {
		one.Annotations = map[string]string{labels.VolumeData: of}
	}
	return one
}

func TestData(t *testing.T) {
	for _, row := range []struct {
		name       string
		one, other *corev1.PersistentVolume
		want       bool
	}{
		{"a volume is no second record of its own data", volume("a", ""), volume("a", ""), false},
		{"two volumes, each with its own data", volume("a", ""), volume("b", ""), false},
		{"the other one records the data of the first", volume("a", ""), volume("b", "a"), true},
		{"the first one records the data of the other", volume("a", "b"), volume("b", ""), true},
		{"both record the data of a third", volume("a", "c"), volume("b", "c"), true},
		{"they have exchanged their data", volume("a", "b"), volume("b", "a"), false},
	} {
		if have := Shared(row.one, row.other); have != row.want {
			t.Errorf("%s: shared is %t", row.name, have)
		}
	}
	moved := volume("a", "b")
	if RemoteClaim(moved) != "claim" || IsRemote(moved) || Name(moved) != "b" {
		t.Error("a volume without annotations is in this cluster, and its claim has the same name everywhere")
	}
	moved.Annotations[labels.RemoteClaim], moved.Labels = "other", map[string]string{labels.RemoteClusterID: "milan"}
	if RemoteClaim(moved) != "other" || !IsRemote(moved) {
		t.Error("the annotation names the claim at the provider")
	}
}
