// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/storageclass"
)

func bounding(name string, resources ...string) corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	for _, one := range resources {
		hard[corev1.ResourceName(one)] = resource.MustParse("2")
	}
	return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
}

const (
	diskSize, diskNumber = "disk.storageclass.storage.k8s.io/requests.storage", "disk.storageclass.storage.k8s.io/persistentvolumeclaims"
	liqoSize, liqoNumber = "liqo.storageclass.storage.k8s.io/requests.storage", "liqo.storageclass.storage.k8s.io/persistentvolumeclaims"
)

// TestEvaded: a quota for the real class that has no counterpart for the virtual one refuses the claim.
func TestEvaded(t *testing.T) {
	for name, test := range map[string]struct {
		quotas []corev1.ResourceQuota
		want   string
	}{
		"no quota":         {},
		"of all classes":   {[]corev1.ResourceQuota{bounding("all", "requests.storage", "persistentvolumeclaims")}, ""},
		"of another class": {[]corev1.ResourceQuota{bounding("fast", "fast.storageclass.storage.k8s.io/requests.storage")}, ""},
		"size": {
			[]corev1.ResourceQuota{bounding("all", "requests.storage"), bounding("disks", diskSize)}, "quota shop/disks bounds " + diskSize,
		},
		"number":                    {[]corev1.ResourceQuota{bounding("disks", diskNumber)}, "quota shop/disks bounds " + diskNumber},
		"of the virtual class":      {[]corev1.ResourceQuota{bounding("liqo", liqoSize)}, ""},
		"of both":                   {[]corev1.ResourceQuota{bounding("disks", diskSize, diskNumber), bounding("liqo", liqoSize, liqoNumber)}, ""},
		"of both, one without size": {[]corev1.ResourceQuota{bounding("disks", diskSize, diskNumber, liqoNumber)}, "bound " + liqoSize},
	} {
		if got := evaded("shop", "liqo", "disk", test.quotas); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestAttackNL5: a tenant whose quota leaves him nothing of a real class asks for it through the virtual one, or grows what he has of it.
func TestAttackNL5(t *testing.T) {
	b := newStorageEnv(t)
	earlier := b.claim("earlier", "worker", nil)
	b.bind(b.real(earlier), "handle-1")
	volume := b.volume(earlier)
	quota := bounding("disks", diskSize)
	b.Make(&quota)

	claim := b.claim("evades", "worker", nil)
	b.warning(claim, "quota shop/disks bounds "+diskSize)
	b.Edit(earlier, func() { earlier.Spec.VolumeName = volume.Name })
	b.EditStatus(earlier, func() {
		earlier.Status.Phase, earlier.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	})
	b.Edit(earlier, func() { earlier.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Ti") })
	b.warning(earlier, "quota shop/disks bounds "+diskSize)
	real := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: storageNamespace, Name: string(claim.UID)}}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(real), real); !apierrors.IsNotFound(err) {
		t.Errorf("the real claim of a claim without a quota: %v", err)
	}
	if size := b.real(earlier).Spec.Resources.Requests.Storage().String(); size != "1Gi" {
		t.Errorf("the real claim has grown to %s", size)
	}

	// An administrator decides how much of it the virtual class gives.
	b.Edit(&quota, func() { quota.Spec.Hard[corev1.ResourceName(liqoSize)] = resource.MustParse("5Ti") })
	b.real(claim)
}

// TestAttackNL5Default: the real class is the default one, which nothing names.
func TestAttackNL5Default(t *testing.T) {
	b := newStorageEnv(t)
	disk := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	b.Edit(disk, func() { disk.Annotations = map[string]string{storageclass.DefaultAnnotation: "true"} })
	quota := bounding("disks", diskNumber)
	b.Make(&quota)
	p := b.provisioner() // names no real class
	claim := claimOf(nil)
	problem, err := quotaProblem(t.Context(), p.cached, p.kube, claim, "")
	if err != nil || !strings.Contains(problem, "quota shop/disks bounds "+diskNumber) {
		t.Errorf("%q %v", problem, err)
	}
}
