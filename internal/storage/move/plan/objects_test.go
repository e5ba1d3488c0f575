// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// TestAttackNM6: no provider gets the keys of a pod that it does not run.
func TestAttackNM6(t *testing.T) {
	for _, row := range []struct {
		from, to       string
		source, target bool // reflected
	}{
		{here, "liqo-milan", false, true},
		{"liqo-milan", here, true, false},
		{"liqo-milan", "liqo-turin", true, true},
	} {
		move := &v1alpha1.VolumeMove{}
		move.Status.From, move.Status.To = row.from, row.to
		secrets := Secrets(move, []byte("server"), []byte("client"), nil, nil)
		for i, reflected := range []bool{row.source, row.target} {
			if _, skipped := secrets[i].Annotations[labels.SkipReflection]; skipped == reflected {
				t.Errorf("from %s to %s: secret %s is reflected: %t", row.from, row.to, secrets[i].Name, !skipped)
			}
			if to, place := secrets[i].Annotations[labels.ReflectTo], []string{row.from, row.to}[i]; reflected && to != place {
				t.Errorf("from %s to %s: secret %s is reflected to %q, and its pod runs in %s", row.from, row.to, secrets[i].Name, to, place)
			}
		}
		if _, has := secrets[0].Data[ServerKey]; has || secrets[1].Data[ClientKey] != nil {
			t.Error("a pod has the private key of the other")
		}
	}
}

// TestSourceIsRead: no pod of a move can write to the source, so its volume may come back while one still runs.
func TestSourceIsRead(t *testing.T) {
	for _, mode := range []string{modeMeasure, modeCopy, modeFinish} {
		f := Facts{Move: &v1alpha1.VolumeMove{}}
		pod, is := f.reader(mode).(*corev1.Pod)
		if !is {
			t.Fatal("the reader is no pod")
		}
		for _, mount := range pod.Spec.Containers[0].VolumeMounts {
			if !mount.ReadOnly {
				t.Errorf("mode %s: %s is mounted to be written", mode, mount.Name)
			}
		}
	}
}

// TestPullSecrets: both pods of a move name the pull Secrets of the installation.
func TestPullSecrets(t *testing.T) {
	f := Facts{Move: &v1alpha1.VolumeMove{}, PullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}}
	for _, object := range []Object{f.reader(modeCopy), f.server()} {
		if pod, ok := object.(*corev1.Pod); !ok || !slices.Equal(pod.Spec.ImagePullSecrets, f.PullSecrets) {
			t.Errorf("%+v has not the pull Secrets %v", object, f.PullSecrets)
		}
	}
}

// TestRecord: a second record of data at a provider has all that the virtual kubelet makes and finds the claim there by.
func TestRecord(t *testing.T) {
	of := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-claim", Labels: map[string]string{labels.RemoteClusterID: "milan"}, Annotations: map[string]string{
		labels.RemoteStorageClass: "disk", labels.RemoteNamespace: "shop-rome", labels.RemoteVolume: "theirs", labels.RemoteDataSource: "template",
	}}}
	of.Spec.ClaimRef = &corev1.ObjectReference{Name: "data"}
	second := record("second", of, nil)
	for key, want := range map[string]string{
		labels.RemoteStorageClass: "disk", labels.RemoteNamespace: "shop-rome", labels.RemoteVolume: "theirs", labels.RemoteDataSource: "template", labels.RemoteClaim: "data", labels.VolumeData: "pvc-claim",
	} {
		if have := second.Annotations[key]; have != want {
			t.Errorf("%s is %q, want %q", key, have, want)
		}
	}
}
