// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// TestAll: a scheme has what was asked for, and an error of one function is not lost.
func TestAll(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	few, err := Of(netv1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	for kind, inFew := range map[string]bool{"TunnelEndpoint": true, "NodeReport": true} {
		gvk := netv1alpha1.GroupVersion.WithKind(kind)
		if !all.Recognizes(gvk) || few.Recognizes(gvk) != inFew {
			t.Errorf("%s: all %t, few %t", gvk, all.Recognizes(gvk), few.Recognizes(gvk))
		}
	}
	pod, move := corev1.SchemeGroupVersion.WithKind("Pod"), storagev1alpha1.GroupVersion.WithKind("VolumeMove")
	if !all.Recognizes(pod) || !all.Recognizes(move) || few.Recognizes(pod) || few.Recognizes(move) {
		t.Error("a scheme of one group has another one's kinds, or that of all lacks some")
	}
	refused := errors.New("refused")
	if _, err := All(func(*runtime.Scheme) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
}
