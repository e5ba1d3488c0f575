// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/data"
)

// Facts is what is known about one volume of ours whose data is at the provider, and about the claims of both clusters. A nil object of a cluster means that
// it does not exist only if that cluster's side is known.
type Facts struct {
	// Volume is the record in this cluster.
	Volume *corev1.PersistentVolume
	// Claim is the claim of the user that the volume belongs to; nil if it is gone, or if another one has its name.
	Claim *corev1.PersistentVolumeClaim
	// Namespace is the remote namespace of the claim's namespace; empty while the namespace is not offloaded to the provider.
	Namespace string
	// Remote is the claim of that name in the provider.
	Remote *corev1.PersistentVolumeClaim
	// Kept: the remote claim holds other data than that of the volume, which no earlier claim of this name is about to delete.
	Kept bool
	// Shared: the volume is released, and another one keeps the same data.
	Shared bool
	// Recorded: the namespace is not offloaded any more, and Remote was read from the provider's API server, in the namespace that the volume records.
	Recorded bool
	// VolumesKnown: all volumes of this cluster have been observed and are current, so that no other record of the data is missing.
	VolumesKnown bool
	// LocalKnown and RemoteKnown: the objects of this cluster, and of the provider, have all been observed and are current.
	LocalKnown, RemoteKnown bool
}

// Step is what to do next. The zero value is nothing: some event follows.
type Step struct {
	// ReadRecorded: read the remote claim that the volume records, and call Plan again with it.
	ReadRecorded bool
	// Apply: the remote claim is to be as the claim asks.
	Apply bool
	// Rename is another name for the remote claim, to be written on our volume.
	Rename string
	// Record is the name of the provider's volume, to be written on ours together with the namespace and the name of the remote claim.
	Record string
	// Capacity is what the provider's volume has, to be written on ours and in the status of the claim.
	Capacity *resource.Quantity
	// DeleteRemote is the UID of the remote claim to delete.
	DeleteRemote types.UID
	// DeleteVolume: the data is gone, and so goes its record.
	DeleteVolume bool
	// Hold is why no pod may use the claim at the provider now; empty if pods may.
	Hold string
	// Warn is an event for the user: why pods are held, or why the data stays.
	Warn string
}

// Plan decides the next step for a volume. Data is deleted in one case only: the user has deleted the claim, and the policy of the volume is Delete.
func Plan(f Facts) Step {
	switch volume := f.Volume; {
	case volume == nil || volume.DeletionTimestamp != nil:
		return Step{Hold: "its volume is being deleted"}
	case volume.Spec.ClaimRef == nil:
		return Step{Hold: "its volume belongs to no claim"}
	case volume.Status.Phase == corev1.VolumeReleased:
		return released(f)
	}
	return bound(f)
}

// released: the claim of the user is gone.
func released(f Facts) Step {
	owner := f.Volume.Spec.ClaimRef
	switch {
	case f.Volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return Step{}
	case owner.UID == "":
		return Step{} // the administrator has just reserved it for a claim to come; it is Available in a moment
	case f.Shared:
		return Step{DeleteVolume: true} // of a move; the data stays
	case f.Namespace == "" && !f.VolumesKnown:
		return Step{} // once they are, the volume is looked at again
	case f.Namespace == "" && !f.Recorded && f.Volume.Annotations[labels.RemoteNamespace] != "":
		return Step{ReadRecorded: true} // a namespace that is deleted may lose its remote namespace before its volumes are released
	case f.Namespace == "" && !f.Recorded:
		return Step{Warn: fmt.Sprintf(
			"namespace %s is not offloaded to the provider, so the data of the deleted claim %s stays there; offload the namespace to delete it",
			owner.Namespace, owner.Name,
		)}
	case !f.Recorded && f.elsewhere() != "":
		return Step{Warn: fmt.Sprintf("the data of the deleted claim %s stays at the provider: %s", owner.Name, f.elsewhere())}
	case !f.Recorded && (!f.RemoteKnown || !f.LocalKnown) || f.Claim != nil: // a volume is released after its claim is gone
		return Step{}
	case f.Remote == nil || volumeOf(f.Remote) != data.Name(f.Volume):
		return Step{DeleteVolume: true} // the data is gone; a claim of that name is another one
	case f.Remote.DeletionTimestamp != nil:
		return Step{} // its deletion requeues the volume
	}
	return Step{DeleteRemote: f.Remote.UID}
}

// bound: the claim of the user exists, or is not known yet.
func bound(f Facts) Step {
	recorded := f.Volume.Annotations[labels.RemoteVolume]
	switch {
	case !f.LocalKnown || !f.RemoteKnown && f.Namespace != "":
		return Step{Hold: "the claims are not known yet"}
	case f.Claim == nil || f.Claim.DeletionTimestamp != nil:
		return Step{Hold: "the claim is being deleted"}
	case f.Namespace == "":
		return Step{Hold: "its namespace is not offloaded to the provider"}
	case f.elsewhere() != "":
		return Step{Hold: f.elsewhere(), Warn: f.elsewhere()}
	case f.Remote == nil && recorded != "":
		return lost("the claim of the provider is gone")
	case f.Remote == nil:
		return Step{Apply: true, Hold: "the provider has no claim yet"}
	case volumeOf(f.Remote) == "":
		return conflict(f.Remote, "it was not made for this one; rename or delete one of the two")
	case volumeOf(f.Remote) != data.Name(f.Volume) && f.Kept && recorded == "" && f.Volume.Annotations[labels.RemoteClaim] == "":
		return Step{Rename: ownName(f.Claim), Hold: "the provider keeps other data under the name of the claim"}
	case volumeOf(f.Remote) != data.Name(f.Volume) && f.Kept:
		return conflict(
			f.Remote,
			fmt.Sprintf("it has the data of another volume, %s, which is kept; delete one of the two claims, if its data is not needed", volumeOf(f.Remote)),
		)
	case volumeOf(f.Remote) != data.Name(f.Volume):
		return conflict(f.Remote, "it has the data of an earlier claim of this name, which is deleted first")
	case f.Remote.DeletionTimestamp != nil:
		return Step{Hold: "the claim of the provider is being deleted", Warn: "the provider deletes the claim; its data will be lost when no pod uses it"}
	case recorded != "" && f.Remote.Spec.VolumeName != recorded:
		return lost(fmt.Sprintf("the claim of the provider is bound to another volume, %q", f.Remote.Spec.VolumeName))
	}
	step := Step{Apply: grows(f.Claim, f.Remote)}
	if recorded == "" || f.Volume.Annotations[labels.RemoteNamespace] == "" { // earlier releases recorded the volume only
		step.Record = f.Remote.Spec.VolumeName // empty until it is bound
	}
	if has, shown := f.Remote.Status.Capacity[corev1.ResourceStorage],
		f.Volume.Spec.Capacity[corev1.ResourceStorage]; f.Remote.Status.Phase == corev1.ClaimBound && has.Cmp(shown) > 0 {
		step.Capacity = &has
	}
	return step
}

// elsewhere returns where the data is if the namespace has another name at the provider than when the data was recorded; empty if it has not, and for volumes
// that earlier releases recorded. The provider keeps the other namespace for the data, so a missing claim in this one is no evidence that the data is lost.
func (f *Facts) elsewhere() string {
	at, namespace := f.Volume.Annotations[labels.RemoteNamespace], f.Volume.Spec.ClaimRef.Namespace
	if at == "" || at == f.Namespace {
		return ""
	}
	return fmt.Sprintf("the data is in namespace %s of the provider, but namespace %s is offloaded to namespace %s there; "+
		"delete its NamespaceOffloading, which deletes no data, and offload it so that its name there is %s (see --namespace-mapping-strategy)",
		at, namespace, f.Namespace, at)
}

// lost: no pod may run on an empty volume as if that had the data.
func lost(what string) Step {
	return Step{Hold: what, Warn: "the data is lost: " + what + "; restore the claim there, or delete this one to start empty"}
}

func conflict(remote *corev1.PersistentVolumeClaim, why string) Step {
	text := fmt.Sprintf("namespace %s of the provider has a claim %s, and %s", remote.Namespace, remote.Name, why)
	return Step{Hold: text, Warn: text}
}

// ownName returns a name for the remote claim that no other claim has.
func ownName(claim *corev1.PersistentVolumeClaim) string {
	most := validation.DNS1123SubdomainMaxLength - len("-") - len(claim.UID)
	return strings.TrimRight(claim.Name[:min(len(claim.Name), most)], "-.") + "-" + string(claim.UID)
}

// volumeOf is the name of the volume whose data a remote claim holds.
func volumeOf(remote *corev1.PersistentVolumeClaim) string {
	return remote.Annotations[labels.VirtualVolume]
}

// grows reports whether the claim asks for more than the remote one. Claims never shrink.
func grows(claim, remote *corev1.PersistentVolumeClaim) bool {
	want, is := claim.Spec.Resources.Requests[corev1.ResourceStorage], remote.Spec.Resources.Requests[corev1.ResourceStorage]
	return want.Cmp(is) > 0
}
