// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

func expression(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

// TestOnRealNodes: the volume of this cluster is usable where the real one is, and on no virtual node.
func TestOnRealNodes(t *testing.T) {
	local := expression(labels.Type, corev1.NodeSelectorOpDoesNotExist)
	zone := expression("zone", corev1.NodeSelectorOpIn, "a")
	field := expression("metadata.name", corev1.NodeSelectorOpIn, "n1")
	terms := func(terms ...corev1.NodeSelectorTerm) *corev1.VolumeNodeAffinity {
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	for name, test := range map[string]struct{ real, want *corev1.VolumeNodeAffinity }{
		"reachable from every node": {nil, terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{local}})},
		"without requirements":      {&corev1.VolumeNodeAffinity{}, terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{local}})},
		"two alternatives": {
			terms(
				corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone}},
				corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{field}},
			),
			terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone, local}},
				corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{field}, MatchExpressions: []corev1.NodeSelectorRequirement{local}}),
		},
		"an alternative that matches nothing stays so": {
			terms(corev1.NodeSelectorTerm{}, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}),
			terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone, local}}),
		},
	} {
		before := test.real.DeepCopy()
		if diff := cmp.Diff(test.want, onRealNodes(test.real)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if diff := cmp.Diff(before, test.real); diff != "" {
			t.Errorf("%s: the real volume was changed:\n%s", name, diff)
		}
	}
}

func claimOf(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "11-22", Labels: map[string]string{"app": "db"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: new(corev1.PersistentVolumeBlock), StorageClassName: new("liqo"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(claim)
	}
	return claim
}

// TestRealClaim: the real claim asks for all that the claim asks for, at the same node, and names its owner.
func TestRealClaim(t *testing.T) {
	got := realClaim(claimOf(nil), "liqo-storage", "fast", "n1", "source")
	if *got.Name != "11-22" || *got.Namespace != "liqo-storage" || *got.Spec.StorageClassName != "fast" || *got.Spec.VolumeMode != corev1.PersistentVolumeBlock ||
		got.Spec.AccessModes[0] != corev1.ReadWriteOnce || (*got.Spec.Resources.Requests).Storage().String() != "1Gi" || *got.Spec.DataSource.Name != "source" {
		t.Errorf("claim %+v %+v", got, got.Spec)
	}
	want := map[string]string{
		"app": "db", labels.AppPartOf: "liqo", labels.VirtualClaimNamespace: "shop", labels.VirtualClaimName: "data",
		labels.VirtualVolume: "pvc-11-22",
	}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{data.SelectedNode: "n1"}, got.Annotations); diff != "" {
		t.Error(diff)
	}
	long := realClaim(claimOf(func(claim *corev1.PersistentVolumeClaim) { claim.Name = strings.Repeat("long-", 20) + "x" }), "liqo-storage", "", "n1", "")
	if long.Spec.StorageClassName != nil || long.Spec.DataSource != nil ||
		long.Labels[labels.VirtualClaimName] != "" || len(long.Annotations[labels.VirtualClaimName]) != 101 {
		t.Errorf("claim with a long name: %v %v", long.Labels, long.Annotations)
	}
}

// TestVolumes: a volume of this cluster is a copy of the real one, and a volume of a provider is pinned to its virtual node. Policy and mount options are
// those of the virtual class.
func TestVolumes(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, ReclaimPolicy: new(corev1.PersistentVolumeReclaimRetain)}
	real := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.example.com", VolumeHandle: "v1"}},
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}, MountOptions: []string{"noatime"},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, NodeAffinity: onNode("n1"), StorageClassName: "fast",
	}}
	here := localVolume("pvc-11-22", claimOf(nil), class, real)
	if here.Spec.CSI.VolumeHandle != "v1" || here.Spec.Capacity.Storage().String() != "2Gi" ||
		here.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		!cmp.Equal(here.Spec.MountOptions, []string{"noatime"}) || *here.Spec.VolumeMode != corev1.PersistentVolumeBlock ||
		!cmp.Equal(here.Spec.NodeAffinity, onRealNodes(onNode("n1"))) {
		t.Errorf("volume of this cluster: %+v", here.Spec)
	}
	if data.IsRemote(here) {
		t.Error("a volume of this cluster counts as one of a provider")
	}
	class.MountOptions, class.ReclaimPolicy = []string{"ro"}, nil
	if other := localVolume("pvc-11-22", claimOf(nil), class, real); !cmp.Equal(other.Spec.MountOptions, []string{"ro"}) ||
		other.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("mount options %v, policy %s", other.Spec.MountOptions, other.Spec.PersistentVolumeReclaimPolicy)
	}
	there := remoteVolume("pvc-11-22", claimOf(nil), class, location{clusterID: "id", node: "liqo-milan", class: "disk", source: "first"})
	if there.Spec.HostPath.Path != "/tmp/liqo-placeholder" || there.Spec.Capacity.Storage().String() != "1Gi" ||
		!cmp.Equal(there.Spec.NodeAffinity, onNode("liqo-milan")) ||
		there.Annotations[labels.RemoteStorageClass] != "disk" || there.Annotations[labels.RemoteDataSource] != "first" || !data.IsRemote(there) {
		t.Errorf("volume of a provider: %+v %+v", there.ObjectMeta, there.Spec)
	}
}

// TestStays: data is deleted only if its user has deleted the claim and the present policy of the volume requires it.
func TestStays(t *testing.T) {
	volume := func(uid string, phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) corev1.PersistentVolume {
		return corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-11-22", UID: types.UID(uid)},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}, PersistentVolumeReclaimPolicy: policy},
			Status:     corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	given := func(volume corev1.PersistentVolume, to *corev1.ObjectReference) corev1.PersistentVolume {
		volume.Spec.ClaimRef = to
		return volume
	}
	const deletes, retains = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	for name, test := range map[string]struct {
		known corev1.PersistentVolume
		now   []corev1.PersistentVolume
		lives bool
		want  string
	}{
		"the claim was deleted": {
			known: volume("1", corev1.VolumeReleased, deletes), now: []corev1.PersistentVolume{volume("1", corev1.VolumeReleased, deletes)},
		},
		"the claim exists": {
			known: volume("1", corev1.VolumeReleased, deletes), now: []corev1.PersistentVolume{volume("1", corev1.VolumeReleased, deletes)},
			lives: true, want: "exists",
		},
		"the user has just kept it": {
			known: volume("1", corev1.VolumeReleased, deletes), now: []corev1.PersistentVolume{volume("1", corev1.VolumeReleased, retains)},
			want: "Retain",
		},
		"it is in use again": {
			known: volume("1", corev1.VolumeReleased, deletes), now: []corev1.PersistentVolume{volume("1", corev1.VolumeBound, deletes)},
			want: "Bound",
		},
		"it is for a successor now": {
			known: volume("1", corev1.VolumeReleased, deletes), want: "another claim",
			now: []corev1.PersistentVolume{given(volume("1", corev1.VolumeReleased, deletes), &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "2"})},
		},
		"it is for any claim now": {
			known: volume("1", corev1.VolumeReleased, deletes), want: "another claim",
			now: []corev1.PersistentVolume{given(volume("1", corev1.VolumeReleased, deletes), nil)},
		},
		"another one has its name": {
			known: volume("1", corev1.VolumeReleased, deletes), now: []corev1.PersistentVolume{volume("2", corev1.VolumeReleased, deletes)},
			want: "another one",
		},
		"it is gone":            {known: volume("1", corev1.VolumeReleased, deletes), want: "gone"},
		"it could not be saved": {known: volume("", "", deletes)},
		"it was saved, but no answer": {
			known: volume("", "", deletes), now: []corev1.PersistentVolume{volume("1", corev1.VolumeBound, deletes)}, want: "another one",
		},
		"it is to be saved once more":   {known: volume("", "", deletes), lives: true, want: "exists"},
		"it does not belong to a claim": {known: corev1.PersistentVolume{}, want: "no claim"},
	} {
		if got := stays(&test.known, test.now, test.lives); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestRemoteClass: a claim gets the class that its class asks for, or the default, and otherwise a reason.
func TestRemoteClass(t *testing.T) {
	two := []sharingv1alpha1.StorageClass{{StorageClassName: "disk"}, {StorageClassName: "fast", Default: true}}
	for name, test := range map[string]struct {
		asked        string
		granted      []sharingv1alpha1.StorageClass
		want, reason string
	}{
		"the default":           {"", two, "fast", ""},
		"the one asked for":     {"disk", two, "disk", ""},
		"one that is not there": {"gold", two, "", `milan does not grant the storage class "gold"`},
		"none granted":          {"", nil, "", "milan grants no storage class"},
		"no default":            {"", two[:1], "", "none as its default"},
	} {
		class := &storagev1.StorageClass{Parameters: map[string]string{remoteClassParameter: test.asked}}
		got, reason := remoteClass(class, "milan", test.granted)
		if got.StorageClassName != test.want || !strings.Contains(reason, test.reason) || (reason == "") != (test.reason == "") {
			t.Errorf("%s: %v, %q", name, got, reason)
		}
	}
}

// TestUnsupported: what cannot be done is refused with the field to change.
func TestUnsupported(t *testing.T) {
	for want, test := range map[string]struct {
		claim  func(*corev1.PersistentVolumeClaim)
		params map[string]string
	}{
		"":                          {nil, map[string]string{realClassParameter: "a", remoteClassParameter: "b"}},
		"selector":                  {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }},
		"volumeAttributesClassName": {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }},
		`parameter "type"`:          {params: map[string]string{"type": "ssd"}},
	} {
		got := unsupported(claimOf(test.claim), &storagev1.StorageClass{Parameters: test.params})
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
