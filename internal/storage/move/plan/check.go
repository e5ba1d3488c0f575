// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelpers "k8s.io/component-helpers/storage/volume"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/nodeready"
	"liqo.io/liqo/internal/kube/storageclass"
	"liqo.io/liqo/internal/storage/data"
)

// here is this cluster as a place of data.
const here = "this cluster"

// placeOf is where the data of a volume is.
func placeOf(volume *corev1.PersistentVolume) string {
	if node := nodeOf(volume); data.IsRemote(volume) && node != "" {
		return node
	}
	return here
}

// nodeOf is the node that a volume is pinned to; empty if it is usable on several.
func nodeOf(volume *corev1.PersistentVolume) string {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, one := range affinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if one.Key == corev1.LabelHostname && one.Operator == corev1.NodeSelectorOpIn && len(one.Values) == 1 {
			return one.Values[0]
		}
	}
	return ""
}

func isVirtual(node *corev1.Node) bool { return node.Labels[labels.Type] == labels.TypeVirtualNode }

// place is where the data is to be.
func (f *Facts) place() string {
	if isVirtual(f.Node) {
		return f.Node.Name
	}
	return here
}

// refused returns in one sentence why a move cannot work; empty if it can.
func (f *Facts) refused() string {
	name, target := f.Move.Name, f.Move.Spec.TargetNode
	switch claim, volume := f.Claim, f.Volume; {
	case claim == nil:
		return fmt.Sprintf("namespace %s has no claim %s", f.Move.Namespace, name)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("claim %s is being deleted", name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("claim %s has lost its volume", name)
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return fmt.Sprintf("claim %s has no data yet: no pod has used it; its first pod decides where the data is", name)
	case volume == nil || volume.DeletionTimestamp != nil:
		return fmt.Sprintf("volume %s of claim %s is missing or being deleted", claim.Spec.VolumeName, name)
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID:
		return fmt.Sprintf("volume %s belongs to another claim than %s", volume.Name, name)
	case volume.Annotations[data.Provisioned] != data.Provisioner || f.Class == nil:
		class, _ := storageclass.Of(claim)
		return fmt.Sprintf("claim %s has the storage class %q, which is not one of Liqo's; only claims of a virtual storage class move", name, class)
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return fmt.Sprintf("claim %s is a block device; only volumes with files move", name)
	case data.IsRemote(volume) && volume.Annotations[labels.RemoteVolume] == "":
		return fmt.Sprintf("the data of claim %s does not exist yet: %s has made no volume for it; see the events of the claim", name, placeOf(volume))
	case f.Node == nil:
		return fmt.Sprintf("there is no node %s", target)
	case f.there():
		return fmt.Sprintf("the data of claim %s is there already", name)
	case f.Node.Spec.Unschedulable:
		return fmt.Sprintf("node %s is cordoned; uncordon it first", target)
	case slices.ContainsFunc(f.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == labels.TaintNoNewPods }):
		return fmt.Sprintf("the cluster of node %s takes no further pods; see the ResourceSlice of the node", target)
	case !nodeReady(f.Node):
		return fmt.Sprintf("node %s is not ready", target)
	}
	if reason := f.refusedPlace(); reason != "" {
		return reason
	}
	return f.refusedPods()
}

// there reports whether the data is at the target.
func (f *Facts) there() bool {
	if data.IsRemote(f.Volume) {
		return isVirtual(f.Node) && nodeOf(f.Volume) == f.Node.Name
	}
	return !isVirtual(f.Node) && volumehelpers.CheckNodeAffinity(f.Volume, f.Node.Labels) == nil
}

// refusedPlace is about source and target.
func (f *Facts) refusedPlace() string {
	remote := data.IsRemote(f.Volume)
	switch {
	case isVirtual(f.Node) && !f.Offloaded:
		return fmt.Sprintf("namespace %s is not offloaded to the cluster of node %s; run `liqoctl offload namespace %s` first", f.Move.Namespace, f.Node.Name, f.Move.Namespace)
	case f.NoClass != "":
		return f.NoClass
	case f.Strategy == "Remote" && (!remote || !isVirtual(f.Node)):
		return fmt.Sprintf("namespace %s is offloaded with the strategy Remote, so no pod can use the data in this cluster", f.Move.Namespace)
	case f.Strategy == "Local" && isVirtual(f.Node):
		return fmt.Sprintf("namespace %s is offloaded with the strategy Local, so no pod can use the data in another cluster", f.Move.Namespace)
	case f.Restricted:
		return fmt.Sprintf("namespace %s enforces the Pod Security level restricted, and the pods that copy run as root to keep owners; relax the level while the data moves", f.Move.Namespace)
	}
	return ""
}

// refusedPods is about the pods that use the claim.
func (f *Facts) refusedPods() string {
	online, once := f.Move.Spec.Online, slices.Contains(f.Claim.Spec.AccessModes, corev1.ReadWriteOncePod)
	switch {
	case f.Move.Spec.DryRun && len(f.Users) > 0 && once, online && len(f.Users) > 0 && once:
		return fmt.Sprintf("claim %s admits one pod only (ReadWriteOncePod), and %s uses it; stop it first", f.Move.Name, names(f.Users))
	case f.Move.Spec.DryRun:
		return ""
	case !online && len(f.Users) > 0:
		return started(f.Users)
	case f.Attached && online:
		return f.attached()
	}
	for i := range f.Users {
		if metav1.GetControllerOf(&f.Users[i]) == nil {
			return fmt.Sprintf("pod %s has no controller that starts it again at the target; delete it first", f.Users[i].Name)
		}
	}
	return ""
}

// attached is why a volume that pods use does not move: a second volume for the same disk could be attached beside the first, and it is detached only when
// the pods end, which a move has them do after the fence.
func (f *Facts) attached() string {
	return fmt.Sprintf("the volume of claim %s is attached to a node by its driver, so it cannot be copied while pods use it; stop them, and move without --online", f.Move.Name)
}

func nodeReady(node *corev1.Node) bool {
	return nodeready.Is(node.Status.Conditions)
}
