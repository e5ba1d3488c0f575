// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/storage/data"
)

// TestOtherRemoteNamespace: a namespace is offloaded again under another remote name, as with another mapping strategy, while the provider keeps the
// first one with the data. The data is neither reported as lost nor forgotten, and is used, or deleted, when the namespace has its first name again.
func TestOtherRemoteNamespace(t *testing.T) {
	const other = "shop-again"
	b := newKeeperEnv(t)
	b.milan.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}})
	used, _, _ := b.stored("used", "disk-1")
	deleted, deletedVolume, deletedThere := b.stored("deleted", "disk-2")
	if at := deletedVolume.Annotations; at[labels.RemoteNamespace] != remote || at[labels.RemoteClaim] != deleted.Name {
		t.Errorf("recorded: %v", at)
	}

	b.offload("")
	b.offload(other)
	b.release(deleted, deletedVolume)
	b.holds(used, "is in namespace "+remote)
	b.Until("the user learns where the data of both claims is", func() bool {
		return b.peer.warned("so that its name there is "+remote) &&
			b.peer.warned("the data of the deleted claim deleted stays at the provider: the data is in namespace "+remote)
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
	first, volume, there := b.stored("first", "disk-1")
	b.Edit(volume, func() { volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
	b.release(first, volume)
	second := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "second"}, Spec: *first.Spec.DeepCopy()}
	second.Spec.VolumeName = volume.Name
	b.Make(second)
	b.Edit(volume, func() { volume.Spec.ClaimRef.Name, volume.Spec.ClaimRef.UID = second.Name, second.UID })
	b.EditStatus(volume, func() { volume.Status.Phase = corev1.VolumeBound })
	b.Until("pods of the second claim use the claim with the data", func() bool { // and the keeper knows the claim
		name, is := b.keeper.RemoteName(shop, second.Name)
		return is && name == there.Name
	})
	b.holds(second, "")
}

// TestBothReleased: the user deletes a claim while its volume moves and the virtual kubelet is down, as in a rollout. When it is back, both records
// of the data are released with the policy Delete. The data goes, and not just its records.
func TestBothReleased(t *testing.T) {
	b := newKeeperEnv(t)
	claim, volume, there := b.stored("data", "disk-1")
	b.keeper.volumes.Remove(fanin.Every) // the next keeper plays the one that was down
	second := b.secondRecord(volume)
	b.EditStatus(second, func() { second.Status.Phase = corev1.VolumeReleased })
	b.release(claim, volume)
	next := New(b.keeper.options)
	next.Start(t.Context(), shop, remote)
	kubetest.Start(t, "the next keeper", next.Run)
	gone(&b.milan, "the data is gone", there)
	b.milan.Edit(there, func() { there.Finalizers = nil })
	gone(&b.Env, "the first record is gone", volume)
	gone(&b.Env, "the second record is gone", second)
}

// TestOtherRecordKept: the facts are late, and do not show that another record of the data of a deleted claim is in use again. The data stays.
func TestOtherRecordKept(t *testing.T) {
	b := newKeeperEnv(t)
	_, volume, there := b.stored("data", "disk-1")
	b.Until("the volume has its size", func() bool { b.Read(volume); return volume.Spec.Capacity.Storage().String() == "2Gi" })
	second := b.secondRecord(volume)
	b.Until("the second record is observed", func() bool { return b.keeper.volume(second.Name) != nil })
	b.milan.Read(there)
	volume.Status.Phase = corev1.VolumeReleased
	if _, err := b.keeper.sync(t.Context(), Facts{Volume: volume, Namespace: remote, Remote: there, LocalKnown: true, RemoteKnown: true}); err == nil ||
		!strings.Contains(err.Error(), "keeps the data") {
		t.Errorf("the other record was not read again: %v", err)
	}
	if b.milan.Read(there); there.DeletionTimestamp != nil {
		t.Error("the data of a record that is kept was deleted")
	}
}

// secondRecord makes the second record of the data of a volume, as a move does.
func (b *keeperEnv) secondRecord(of *corev1.PersistentVolume) *corev1.PersistentVolume {
	b.T.Helper()
	second := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-move-source", Labels: of.Labels, Annotations: map[string]string{labels.VolumeData: data.Name(of)}},
		Spec:       *of.Spec.DeepCopy(),
	}
	maps.Copy(second.Annotations, of.Annotations)
	second.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: shop, Name: "liqo-move-source", UID: "source"}
	b.Make(second)
	return second
}

// TestRetainedNamesake: a claim with the policy Retain is deleted, and another one of its name is made, as by a StatefulSet. The provider keeps the data of the
// first, and the second starts empty under another name there.
func TestRetainedNamesake(t *testing.T) {
	b := newKeeperEnv(t)
	first, firstVolume := b.claim("data")
	b.Edit(firstVolume, func() { firstVolume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
	firstThere := b.there(first)
	b.bind(firstThere, "disk-1")
	b.recorded(firstVolume)
	b.release(first, firstVolume)
	b.milan.Read(firstThere)
	version := firstThere.ResourceVersion

	second, secondVolume := b.claim("data")
	secondThere := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: ownName(second)}}
	b.Until("the provider has the second claim", func() bool {
		return b.milan.Get(t.Context(), client.ObjectKeyFromObject(secondThere), secondThere) == nil
	})
	b.bind(secondThere, "disk-2")
	b.recorded(secondVolume)
	b.holds(second, "")
	if name, is := b.keeper.RemoteName(shop, second.Name); !is || name != secondThere.Name {
		t.Errorf("pods of the second claim use claim %q at the provider", name)
	}
	b.release(second, secondVolume)
	gone(&b.milan, "the data of the second claim is gone", secondThere)
	if b.milan.Read(firstThere); firstThere.ResourceVersion != version {
		t.Errorf("the claim with the retained data was changed: %+v", firstThere)
	}
	if b.peer.warned("deleted first") {
		t.Error("the user was warned of a deletion that does not follow")
	}
}

// TestReleasedAfterTheEnd: a namespace is deleted, and its remote namespace is given up before its volumes are released. The data goes all the same.
func TestReleasedAfterTheEnd(t *testing.T) {
	b := newKeeperEnv(t)
	claim, volume, there := b.stored("data", "disk-1")
	b.offload("")
	b.release(claim, volume)
	gone(&b.milan, "the data of the deleted claim is gone", there)
	b.milan.Edit(there, func() { there.Finalizers = nil })
	gone(&b.Env, "its record is gone", volume)
}
