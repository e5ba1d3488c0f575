// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"liqo.io/liqo/internal/action/provider"
)

// TestReadKubeletConfig: without kubeadm's record, or with one that cannot be read, kubelets sign their own certificates.
func TestReadKubeletConfig(t *testing.T) {
	for text, want := range map[string]bool{
		"none": false, "": false, "serverTLSBootstrap: true": true, "serverTLSBootstrap: false": false, "kind: KubeletConfiguration": false, "{": false,
	} {
		var objects []client.Object
		if text != "none" {
			objects = append(objects, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"}, Data: map[string]string{"kubelet": text},
			})
		}
		var f provider.Facts
		err := readConfigured(t.Context(), fake.NewClientBuilder().WithObjects(objects...).Build(), &f)
		if err != nil || f.ServerTLSBootstrap != want {
			t.Errorf("%q: %t, %v, want %t", text, f.ServerTLSBootstrap, err, want)
		}
	}
}
