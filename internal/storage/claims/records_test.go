// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// TestOtherRemoteNamespace: a namespace is offloaded again under another remote name, as with another mapping strategy, while the provider keeps the first one with
// the data. The data is neither reported as lost nor forgotten, and is used, or deleted, when the namespace has its first name again.
func TestOtherRemoteNamespace(t *testing.T) {
	const other = "shop-again"
	b := newKeeperEnv(t)
	b.milan.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}})
	used, usedVolume := b.claim("used")
	b.bind(b.there(used), "disk-1")
	b.recorded(usedVolume)
	deleted, deletedVolume := b.claim("deleted")
	deletedThere := b.there(deleted)
	b.bind(deletedThere, "disk-2")
	b.recorded(deletedVolume)
	if at := deletedVolume.Annotations; at[labels.RemoteNamespace] != remote || at[labels.RemoteClaim] != deleted.Name {
		t.Errorf("recorded: %v", at)
	}

	b.offload("")
	b.release(deleted, deletedVolume)
	b.Until("the user learns that the data stays", func() bool { return b.peer.warned("offload the namespace to delete it") })
	b.offload(other)
	b.holds(used, "is in namespace "+remote)
	b.Until("the user learns where the data of both claims is", func() bool {
		return b.peer.warned("so that its name there is "+remote) && b.peer.warned("the data of the deleted claim deleted stays at the provider: the data is in namespace "+remote)
	})
	if b.peer.warned("lost") {
		t.Error("the data is reported as lost")
	}
	b.Read(deletedVolume)
	b.milan.Read(deletedThere)
	if deletedVolume.DeletionTimestamp != nil || deletedThere.DeletionTimestamp != nil {
		t.Error("the record of the data was deleted, or the data")
	}

	b.offload(remote)
	b.holds(used, "")
	gone(&b.milan, "the data of the deleted claim is gone", deletedThere)
}

// TestGivenToAnotherClaim: the administrator gives a retained volume to a claim of another name, which gets the data.
func TestGivenToAnotherClaim(t *testing.T) {
	b := newKeeperEnv(t)
	first, volume := b.claim("first")
	there := b.there(first)
	b.bind(there, "disk-1")
	b.recorded(volume)
	b.Edit(volume, func() { volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
	b.release(first, volume)
	second := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "second"}, Spec: *first.Spec.DeepCopy()}
	second.Spec.VolumeName = volume.Name
	b.Make(second)
	b.Edit(volume, func() { volume.Spec.ClaimRef.Name, volume.Spec.ClaimRef.UID = second.Name, second.UID })
	b.EditStatus(volume, func() { volume.Status.Phase = corev1.VolumeBound })
	b.holds(second, "")
	if name, is := b.keeper.RemoteName(shop, second.Name); !is || name != there.Name {
		t.Errorf("pods of the second claim use claim %q at the provider", name)
	}
}
