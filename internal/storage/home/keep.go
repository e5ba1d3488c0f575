// SPDX-License-Identifier: Apache-2.0

package home

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/storageclass"
	"liqo.io/liqo/internal/storage/data"
)

// Facts is what is known about one claim.
type Facts struct {
	// Name is what users call it: its own name, or that of the ephemeral volume for which it is made.
	Name  string
	Claim *corev1.PersistentVolumeClaim
	// Class is its class; nil if there is no such class.
	Class *storagev1.StorageClass
	// Volume is its volume; nil if it has none, or if that is not known.
	Volume *corev1.PersistentVolume
}

// keeps returns why a claim keeps its pods in this cluster; nothing if it does not. What is not known to have a volume at a provider stays: a pod of
// this cluster runs with every claim, also if its class is made later and turns out to be ours.
func keeps(f Facts) string {
	ours := f.Claim.Annotations[data.Assigned] == data.Provisioner || f.Class != nil && f.Class.Provisioner == data.Provisioner
	if _, everywhere := f.Claim.Annotations[labels.ExternalClaim]; ours || everywhere || f.Volume != nil && choosesNodes(f.Volume) {
		return ""
	}
	const try = "; with a storage class of the provisioner " + data.Provisioner + " its data would be where the pod runs"
	class, _ := storageclass.Of(f.Claim)
	switch {
	case f.Claim.Spec.VolumeName != "":
		return fmt.Sprintf("claim %s has the volume %s, which no other cluster has%s", f.Name, f.Claim.Spec.VolumeName, try)
	case f.Class != nil:
		return fmt.Sprintf(
			"claim %s has the storage class %s, whose provisioner %s makes no volumes in other clusters%s", f.Name, f.Class.Name,
			f.Class.Provisioner, try,
		)
	case class != "":
		return fmt.Sprintf("claim %s has the storage class %s, which does not exist%s", f.Name, class, try)
	}
	return fmt.Sprintf("claim %s has no storage class, so it takes a volume of this cluster%s", f.Name, try)
}

// choosesNodes reports whether a volume states itself on which nodes it is, virtual ones included or not. A zone does not: a provider may have one of
// that name.
func choosesNodes(volume *corev1.PersistentVolume) bool {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	names := func(one corev1.NodeSelectorRequirement) bool {
		return one.Key == corev1.LabelHostname || one.Key == labels.Type
	}
	return !slices.ContainsFunc(volume.Spec.NodeAffinity.Required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchFields) == 0 && !slices.ContainsFunc(term.MatchExpressions, names)
	})
}
