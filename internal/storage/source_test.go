// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/data"
)

// TestSourceOf: a claim starts with the data of a claim of its namespace, and of nothing else.
func TestSourceOf(t *testing.T) {
	for name, test := range map[string]struct {
		source       *corev1.TypedLocalObjectReference
		ref          *corev1.TypedObjectReference
		want, reason string
	}{
		"none":    {},
		"a claim": {source: &corev1.TypedLocalObjectReference{Kind: claimKind, Name: "first"}, want: "first"},
		"the same, as Kubernetes sets both": {
			source: &corev1.TypedLocalObjectReference{Kind: claimKind, Name: "first"}, ref: &corev1.TypedObjectReference{Kind: claimKind, Name: "first"}, want: "first",
		},
		"a claim of this namespace by name": {ref: &corev1.TypedObjectReference{Kind: claimKind, Name: "first", Namespace: new("shop")}, want: "first"},
		"a claim of another namespace": {
			ref: &corev1.TypedObjectReference{Kind: claimKind, Name: "first", Namespace: new("bank")}, reason: "in its own namespace",
		},
		"a snapshot": {
			source: &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", APIGroup: new("snapshot.storage.k8s.io"), Name: "s"},
			reason: "is not reflected",
		},
		"a claim that is none": {
			source: &corev1.TypedLocalObjectReference{Kind: claimKind, APIGroup: new("example.com"), Name: "x"}, reason: "knows no " + claimKind,
		},
		"a populator": {ref: &corev1.TypedObjectReference{Kind: "Backup", APIGroup: new("example.com"), Name: "x"}, reason: "knows no Backup"},
		"nothing":     {ref: &corev1.TypedObjectReference{}, reason: "without a kind"},
	} {
		got, reason := sourceOf(claimOf(func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource, c.Spec.DataSourceRef = test.source, test.ref }))
		if got != test.want || !strings.Contains(reason, test.reason) || (reason == "") != (test.reason == "") {
			t.Errorf("%s: %q, %q", name, got, reason)
		}
	}
}

// TestJudge: data is copied within one cluster only, and never half of it.
func TestJudge(t *testing.T) {
	type facts struct {
		source  *corev1.PersistentVolumeClaim
		volume  *corev1.PersistentVolume
		cluster string
	}
	for name, test := range map[string]struct {
		change func(*facts)
		want   verdict
		reason string
	}{
		"here": {func(*facts) {}, copied, ""},
		"at the same provider": {func(f *facts) {
			f.cluster, f.volume.Labels = "milan", map[string]string{labels.RemoteClusterID: "milan"}
			f.volume.Annotations[labels.RemoteVolume] = "disk-1"
		}, copied, ""},
		"at the same provider, not recorded": {func(f *facts) {
			f.cluster, f.volume.Labels = "milan", map[string]string{labels.RemoteClusterID: "milan"}
		}, later, "not recorded yet"},
		"here, of a provider's":  {func(f *facts) { f.volume.Labels = map[string]string{labels.RemoteClusterID: "milan"} }, elsewhere, "in another cluster"},
		"at a provider, of ours": {func(f *facts) { f.cluster = "milan" }, elsewhere, "move it first"},
		"at another provider": {func(f *facts) {
			f.cluster, f.volume.Labels = "turin", map[string]string{labels.RemoteClusterID: "milan"}
		}, elsewhere, "in another cluster"},
		"of a claim that is gone":   {func(f *facts) { f.source = nil }, later, "does not exist"},
		"of one that is deleted":    {func(f *facts) { f.source.DeletionTimestamp = new(metav1.Now()) }, later, "being deleted"},
		"of one without data":       {func(f *facts) { f.source.Status.Phase = "" }, later, "is Pending"},
		"of one that moves":         {func(f *facts) { f.source.Status.Phase = corev1.ClaimLost }, later, "moves"},
		"of one whose volume moves": {func(f *facts) { f.volume = nil }, later, "may be moving"},
		"of another class":          {func(f *facts) { f.volume.Annotations = nil }, never, "virtual storage class"},
		"of another's volume":       {func(f *facts) { f.volume.Spec.ClaimRef.UID = "other" }, never, "virtual storage class"},
		"of files for a device":     {func(f *facts) { f.source.Spec.VolumeMode = nil }, never, "has Filesystem"},
		"of more than fits":         {func(f *facts) { f.volume.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi") }, never, "has 2Gi"},
	} {
		f := facts{
			source: claimOf(func(c *corev1.PersistentVolumeClaim) {
				c.Name, c.UID, c.Status.Phase = "first", "first", corev1.ClaimBound
			}),
			volume: &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pvc-first", Annotations: map[string]string{data.Provisioned: data.Provisioner}},
				Spec: corev1.PersistentVolumeSpec{
					ClaimRef: &corev1.ObjectReference{UID: types.UID("first")}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			},
		}
		test.change(&f)
		got, reason := judge(claimOf(nil), f.source, f.volume, "first", f.cluster)
		if got != test.want || !strings.Contains(reason, test.reason) || (reason == "") != (got == copied) {
			t.Errorf("%s: %d, %q", name, got, reason)
		}
	}
}
