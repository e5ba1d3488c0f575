// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"liqo.io/liqo/internal/action/install/clusters"
)

// TestReadObjects: what a type asks for is read as it is, and what the cluster does not have is left out.
func TestReadObjects(t *testing.T) {
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"}, Data: map[string]string{"kubelet": "{"}}
	var f clusters.Facts
	if err := readObjects(t.Context(), fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(record).Build(), &f); err != nil {
		t.Fatal(err)
	}
	have := map[clusters.Object]any{}
	for id, object := range f.Objects {
		have[id] = object["data"]
	}
	want := map[clusters.Object]any{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "kubelet-config"}: map[string]any{"kubelet": "{"}}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}
