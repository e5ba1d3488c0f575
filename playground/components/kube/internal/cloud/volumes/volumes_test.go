// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func planned() *corev1.PersistentVolume {
	return plan(controller.ProvisionOptions{
		PVName: "pvc-1", SelectedNodeName: "rome-worker",
		StorageClass: &storagev1.StorageClass{ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete)},
		PVC: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		},
	})
}

func TestVolumeLocation(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(*corev1.PersistentVolume)
		node      string
		directory string
	}{
		"as planned":        {func(*corev1.PersistentVolume) {}, "rome-worker", "var/local-path/pvc-1_shop_data"},
		"no host path":      {func(v *corev1.PersistentVolume) { v.Spec.HostPath = nil }, "", ""},
		"another directory": {func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/etc" }, "", ""},
		"the parent":        {func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/var/local-path" }, "", ""},
		"all of them":       {func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/var/local-path/" }, "", ""},
		"upwards":           {func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/var/local-path/pvc-1_x/../../../etc" }, "", ""},
		"below":             {func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/var/local-path/pvc-1_x/y" }, "", ""},
		"of another volume": {func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = "/var/local-path/pvc-2_shop_data" }, "", ""},
		"no affinity":       {func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }, "", ""},
		"affinity to a zone": {func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelTopologyZone
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			volume := planned()
			test.change(volume)
			node, directory, err := location(volume)
			if node != test.node || directory != test.directory || (err == nil) != (test.node != "") {
				t.Errorf("node %q, directory %q, error %v", node, directory, err)
			}
		})
	}
}

func TestDirectories(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "var/local-path/pvc-1_a_b")
	for range 2 { // the second time it is already there
		if err := makeDirectory(root, "var/local-path/pvc-1_a_b"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatalf("made %v, error %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is already gone
		if err := removeDirectory(root, "var/local-path/pvc-1_a_b"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
	if err := removeDirectory(filepath.Join(root, "no-such-node"), "var/local-path/pvc-1_a_b"); err != nil {
		t.Errorf("a node that is gone: %v", err)
	}
}

// A pod can write anything into its node's root, links to the host's files included.
func TestDirectoriesStayInRoot(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(outside, "pvc-1_a_b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "var/local-path")); err != nil {
		t.Fatal(err)
	}
	for name, act := range map[string]func(string, string) error{"make": makeDirectory, "remove": removeDirectory} {
		if err := act(root, "var/local-path/pvc-1_a_b"); err == nil || !strings.Contains(err.Error(), "escapes") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "pvc-1_a_b")); err != nil {
		t.Error(err)
	}
}
