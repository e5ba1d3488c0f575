// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
)

func sized(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// usual is a claim whose data is at the provider, with nothing left to do.
func usual() Facts {
	return Facts{
		Volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{
				labels.RemoteNamespace: "shop-rome", labels.RemoteClaim: "data", labels.RemoteVolume: "disk-1",
			}},
			Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "1"}, Capacity: sized("1Gi"),
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1"},
			Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: sized("1Gi")}},
		},
		Namespace: "shop-rome",
		Remote: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "data", UID: "r1", Annotations: map[string]string{labels.VirtualVolume: "pvc-1"}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "disk-1", Resources: corev1.VolumeResourceRequirements{Requests: sized("1Gi")}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: sized("1Gi")},
		},
		LocalKnown: true, RemoteKnown: true, VolumesKnown: true,
	}
}

// TestPlan: what is done for a claim, and that nothing but the user's word deletes data or lets a pod run without it.
func TestPlan(t *testing.T) {
	deleted := func(f *Facts) { f.Volume.Status.Phase, f.Claim = corev1.VolumeReleased, nil }
	for name, test := range map[string]struct {
		change func(*Facts)
		want   Step // Hold and Warn are compared by what they contain
	}{
		"nothing to do": {func(*Facts) {}, Step{}},
		"deleted, and another volume records the same data": {func(f *Facts) { deleted(f); f.Shared = true }, Step{DeleteVolume: true}},
		"a move gave it other data": {func(f *Facts) {
			f.Volume.Annotations[labels.VolumeData], f.Remote.Annotations[labels.VirtualVolume] = "pvc-2", "pvc-2"
		}, Step{}},
		"new":                                {func(f *Facts) { f.Remote, f.Volume.Annotations = nil, nil }, Step{Apply: true, Hold: "no claim yet"}},
		"new, and the provider is not known": {func(f *Facts) { f.Remote, f.Volume.Annotations, f.RemoteKnown = nil, nil, false }, Step{Hold: "not known yet"}},
		"new, in a namespace that is not offloaded": {func(f *Facts) { f.Remote, f.Volume.Annotations, f.Namespace = nil, nil, "" }, Step{Hold: "not offloaded"}},
		"waits for its first pod": {func(f *Facts) {
			f.Remote.Spec.VolumeName, f.Remote.Status, f.Volume.Annotations = "", corev1.PersistentVolumeClaimStatus{}, nil
		}, Step{}},
		"bound for the first time":       {func(f *Facts) { f.Volume.Annotations = nil }, Step{Record: "disk-1"}},
		"recorded by an earlier release": {func(f *Facts) { f.Volume.Annotations = map[string]string{labels.RemoteVolume: "disk-1"} }, Step{Record: "disk-1"}},
		"recorded by an earlier release, and gone": {func(f *Facts) {
			f.Volume.Annotations, f.Remote = map[string]string{labels.RemoteVolume: "disk-1"}, nil
		}, Step{Hold: "is gone", Warn: "data is lost"}},
		"recorded by an earlier release, and another volume is there": {func(f *Facts) {
			f.Volume.Annotations = map[string]string{labels.RemoteVolume: "disk-2"}
		}, Step{Hold: "another volume", Warn: "data is lost"}},
		"offloaded under another name": {func(f *Facts) {
			f.Namespace, f.Remote = "shop",
				nil
		}, Step{Hold: "is in namespace shop-rome", Warn: "so that its name there is shop-rome"}},
		"larger than asked for":           {func(f *Facts) { f.Remote.Status.Capacity = sized("2Gi") }, Step{Capacity: new(resource.MustParse("2Gi"))}},
		"the user asks for more":          {func(f *Facts) { f.Claim.Spec.Resources.Requests = sized("3Gi") }, Step{Apply: true}},
		"the provider has lost the claim": {func(f *Facts) { f.Remote = nil }, Step{Hold: "is gone", Warn: "data is lost"}},
		"the provider has another volume": {func(f *Facts) { f.Remote.Spec.VolumeName = "disk-2" }, Step{Hold: "another volume", Warn: "data is lost"}},
		"the provider deletes it":         {func(f *Facts) { f.Remote.DeletionTimestamp = new(metav1.Now()) }, Step{Hold: "being deleted", Warn: "will be lost"}},
		"the name is taken":               {func(f *Facts) { f.Remote.Annotations = nil }, Step{Hold: "not made for this one", Warn: "rename"}},
		"the name has an earlier claim": {
			func(f *Facts) { f.Remote.Annotations = map[string]string{labels.VirtualVolume: "pvc-0"} },
			Step{Hold: "earlier claim", Warn: "earlier claim"},
		},
		"the name has other data that is kept": {func(f *Facts) {
			f.Volume.Annotations, f.Kept, f.Remote.Annotations = nil, true, map[string]string{labels.VirtualVolume: "pvc-0"}
		}, Step{Rename: "data-1", Hold: "keeps other data"}},
		"its own name has other data that is kept": {func(f *Facts) {
			f.Volume.Annotations = map[string]string{labels.RemoteClaim: "data-1"}
			f.Kept, f.Remote.Annotations = true, map[string]string{labels.VirtualVolume: "pvc-0"}
		}, Step{Hold: "another volume, pvc-0, which is kept", Warn: "pvc-0"}},
		"the recorded name has other data that is kept": {func(f *Facts) {
			f.Kept, f.Remote.Annotations = true, map[string]string{labels.VirtualVolume: "pvc-0"}
		}, Step{Hold: "another volume, pvc-0, which is kept", Warn: "pvc-0"}},
		"the user deletes it while a pod uses it": {func(f *Facts) { f.Claim.DeletionTimestamp = new(metav1.Now()) }, Step{Hold: "being deleted"}},
		"no claim is known here":                  {func(f *Facts) { f.Claim, f.LocalKnown = nil, false }, Step{Hold: "not known yet"}},

		"deleted": {deleted, Step{DeleteRemote: "r1"}},
		"deleted, and kept by its policy": {func(f *Facts) {
			deleted(f)
			f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, Step{}},
		"deleted, and reserved for a claim to come": {func(f *Facts) { deleted(f); f.Volume.Spec.ClaimRef.UID = "" }, Step{}},
		"deleted, and gone":                         {func(f *Facts) { deleted(f); f.Remote = nil }, Step{DeleteVolume: true}},
		"deleted, and the provider is silent":       {func(f *Facts) { deleted(f); f.Remote, f.RemoteKnown = nil, false }, Step{}},
		"released, but the claim exists":            {func(f *Facts) { f.Volume.Status.Phase = corev1.VolumeReleased }, Step{}},
		"deleted, and claims here are not known":    {func(f *Facts) { deleted(f); f.LocalKnown = false }, Step{}},
		"deleted, and not offloaded": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Volume.Annotations = "",
				nil
		}, Step{Warn: "stays there"}},
		"deleted, and not offloaded any more": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Remote, f.LocalKnown = "", nil,
				false
		}, Step{ReadRecorded: true}},
		"deleted, not offloaded any more, and another record may be missing": {func(f *Facts) { deleted(f); f.Namespace, f.VolumesKnown = "", false }, Step{}},
		"deleted, not offloaded any more, and read": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Recorded, f.LocalKnown = "",
				true, false
		}, Step{DeleteRemote: "r1"}},
		"deleted, not offloaded any more, and gone": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Recorded, f.Remote = "", true,
				nil
		}, Step{DeleteVolume: true}},
		"deleted, not offloaded any more, and other data is there": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Recorded, f.Remote.Annotations = "", true, map[string]string{labels.VirtualVolume: "pvc-2"}
		}, Step{DeleteVolume: true}},
		"deleted, not offloaded any more, and the provider is at it": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Recorded, f.Remote.DeletionTimestamp = "", true, new(metav1.Now())
		}, Step{}},
		"deleted, and offloaded under another name": {func(f *Facts) {
			deleted(f)
			f.Namespace, f.Remote = "shop",
				nil
		}, Step{Warn: "stays at the provider: the data is in namespace shop-rome"}},
		"deleted, and the provider is at it": {func(f *Facts) { deleted(f); f.Remote.DeletionTimestamp = new(metav1.Now()) }, Step{}},
		"deleted, and a successor has its name": {
			func(f *Facts) { deleted(f); f.Remote.Annotations = map[string]string{labels.VirtualVolume: "pvc-2"} }, Step{DeleteVolume: true},
		},
		"the volume is being deleted": {func(f *Facts) { f.Volume.DeletionTimestamp = new(metav1.Now()) }, Step{Hold: "being deleted"}},
		"the volume has no claim":     {func(f *Facts) { f.Volume.Spec.ClaimRef = nil }, Step{Hold: "no claim"}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := usual()
			test.change(&facts)
			got := Plan(facts)
			for what, text := range map[string][2]string{"hold": {got.Hold, test.want.Hold}, "warning": {got.Warn, test.want.Warn}} {
				if (text[0] == "") != (text[1] == "") || !strings.Contains(text[0], text[1]) {
					t.Errorf("%s %q, want %q", what, text[0], text[1])
				}
			}
			got.Hold, got.Warn, test.want.Hold, test.want.Warn = "", "", "", ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if wordOfTheUser := facts.Volume.Status.Phase == corev1.VolumeReleased; !wordOfTheUser && (got.DeleteRemote != "" || got.DeleteVolume) {
				t.Errorf("data is deleted although the claim exists: %+v", got)
			}
		})
	}
}

// TestOwnName: the name is valid and the claim's own, also if that of the claim is as long as names can be.
func TestOwnName(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "123e4567-e89b-42d3-a456-426614174000"}}
	for _, name := range []string{"data", strings.Repeat("a", 253), strings.Repeat("a", 215) + "." + strings.Repeat("b", 37)} {
		claim.Name = name
		if own := ownName(claim); !strings.HasSuffix(own, string(claim.UID)) || own[0] != name[0] || len(validation.IsDNS1123Subdomain(own)) > 0 {
			t.Errorf("%s: %s", name, own)
		}
	}
}
