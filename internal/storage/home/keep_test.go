// SPDX-License-Identifier: Apache-2.0

package home

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/storage/data"
)

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

func on(requirements ...[]corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}}}
	for _, one := range requirements {
		volume.Spec.NodeAffinity.Required.NodeSelectorTerms = append(
			volume.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: one},
		)
	}
	return volume
}

func in(key, value string) []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}
}

// TestKeeps: a claim keeps its pods here unless something shows that a provider has its volume, or gets it.
func TestKeeps(t *testing.T) {
	local, ours := class("local-path", "rancher.io/local-path"), class("liqo", data.Provisioner)
	bound := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-1" }
	named := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
	}
	annotated := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
	}
	for name, test := range map[string]struct {
		change []func(*corev1.PersistentVolumeClaim)
		class  *storagev1.StorageClass
		volume *corev1.PersistentVolume
		want   string // a part of the reason
	}{
		"a class of a node": {
			change: []func(*corev1.PersistentVolumeClaim){named("local-path")}, class: local,
			want: "provisioner rancher.io/local-path makes no volumes in other clusters",
		},
		"the same, bound, and its volume is not known": {
			change: []func(*corev1.PersistentVolumeClaim){named("local-path"), bound}, class: local,
			want: "has the volume pv-1, which no other cluster has",
		},
		"bound to a volume of one node": {
			change: []func(*corev1.PersistentVolumeClaim){named("local-path"), bound}, class: local, volume: on(in(corev1.LabelHostname, "worker")),
		},
		"bound to a volume of virtual nodes": {
			change: []func(*corev1.PersistentVolumeClaim){named(""), bound}, volume: on(in("liqo.io/type", "virtual-node")),
		},
		"bound to a volume of one node or a zone": {
			change: []func(*corev1.PersistentVolumeClaim){named("local-path"), bound}, class: local,
			volume: on(in(corev1.LabelHostname, "worker"), in(corev1.LabelTopologyZone, "a")), want: "pv-1",
		},
		"bound to a volume of a zone": {
			change: []func(*corev1.PersistentVolumeClaim){named("ebs"), bound}, class: class("ebs", "ebs.csi.aws.com"),
			volume: on(in(corev1.LabelTopologyZone, "a")), want: "pv-1",
		},
		"bound to a share that each node can mount": {
			change: []func(*corev1.PersistentVolumeClaim){named(""), bound}, volume: &corev1.PersistentVolume{}, want: "pv-1",
		},
		"such a share, which the provider has as well": {
			change: []func(*corev1.PersistentVolumeClaim){named(""), bound, annotated("storage.liqo.io/external", "")},
			volume: &corev1.PersistentVolume{},
		},
		"our class":        {change: []func(*corev1.PersistentVolumeClaim){named("liqo")}, class: ours},
		"our class, bound": {change: []func(*corev1.PersistentVolumeClaim){named("liqo"), bound}, class: ours},
		"our class, bound, and the class is gone": {
			change: []func(*corev1.PersistentVolumeClaim){named("liqo"), bound, annotated(data.Assigned, data.Provisioner)},
		},
		"a class of volumes that an administrator made": {
			change: []func(*corev1.PersistentVolumeClaim){named("manual")}, class: class("manual", "kubernetes.io/no-provisioner"),
			want: "kubernetes.io/no-provisioner",
		},
		"a class that does not exist":         {change: []func(*corev1.PersistentVolumeClaim){named("later")}, want: "class later, which does not exist"},
		"no class, by the user's word":        {change: []func(*corev1.PersistentVolumeClaim){named("")}, want: "has no storage class"},
		"no class yet, and a default of ours": {class: ours},
		"no class yet, and another default":   {class: local, want: "local-path"},
		"no class yet, and no default":        {want: "has no storage class"},
		"the class of the old annotation": {
			change: []func(*corev1.PersistentVolumeClaim){annotated("volume.beta.kubernetes.io/storage-class", "local-path")}, class: local,
			want: "local-path",
		},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		for _, change := range test.change {
			change(claim)
		}
		got := keeps(Facts{Name: "data", Claim: claim, Class: test.class, Volume: test.volume})
		if test.want == "" && got != "" || !strings.Contains(got, test.want) || got != "" && !strings.HasPrefix(got, "claim data has ") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
