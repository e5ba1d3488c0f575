// SPDX-License-Identifier: Apache-2.0

package data

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
)

func volume(name, of string) *corev1.PersistentVolume {
	one := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Name: "claim"}}}
	if of != "" {
		one.Annotations = map[string]string{labels.VolumeData: of}
	}
	return one
}

// released returns a volume whose claim was deleted. Without a UID, it is reserved for a claim to come.
func released(volume *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy, uid types.UID) *corev1.PersistentVolume {
	volume.Status.Phase, volume.Spec.PersistentVolumeReclaimPolicy, volume.Spec.ClaimRef.UID = corev1.VolumeReleased, policy, uid
	return volume
}

func bound(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	volume.Status.Phase = corev1.VolumeBound
	return volume
}

func unclaimed(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
	volume.Spec.ClaimRef = nil
	return volume
}

func TestData(t *testing.T) {
	const deletes, retains = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
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
		{
			"both are to be deleted, and the first one records the data of the other", released(volume("a", "b"), deletes, "1"),
			released(volume("b", ""), deletes, "2"), false,
		},
		{
			"both are to be deleted, and the other one records the data of the first", released(volume("b", ""), deletes, "2"),
			released(volume("a", "b"), deletes, "1"), false,
		},
		{"the other one is kept", released(volume("a", ""), deletes, "1"), released(volume("b", "a"), retains, "2"), true},
		{"the other one is in use", released(volume("a", ""), deletes, "1"), bound(released(volume("b", "a"), deletes, "2")), true},
		{"the other one names no claim", released(volume("a", ""), deletes, "1"), unclaimed(released(volume("b", "a"), deletes, "2")), true},
		{"the other one is reserved", released(volume("a", ""), deletes, "1"), released(volume("b", "a"), deletes, ""), true},
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

// TestClaimsOf: a pod uses the claims that it names, and those that Kubernetes makes for it under names of their own.
func TestClaimsOf(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
		{Name: "files", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}}}
	if got := ClaimsOf(pod); !slices.Equal(got, []string{"data", "db-0-scratch"}) {
		t.Errorf("%q", got)
	}
}
