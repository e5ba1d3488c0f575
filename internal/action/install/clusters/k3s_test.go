// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/internal/action/install/clusters"
)

func TestK3s(t *testing.T) {
	check(t, "k3s",
		recorded{objects: "k3s", host: "https://127.0.0.1:6443", want: "10.42.0.0/16 10.43.0.0/16 - NodePort k3s"},
		recorded{objects: "k3s", host: "https://192.0.2.20:6443", want: "10.42.0.0/16 10.43.0.0/16 https://192.0.2.20:6443 NodePort k3s"},
		recorded{ // the documentation skips this check on k3s
			objects: "k3s", host: "https://127.0.0.1:6443", overrides: clusters.Overrides{APIServer: "https://192.0.2.20:6443"},
			want: "10.42.0.0/16 10.43.0.0/16 https://192.0.2.20:6443 NodePort k3s",
		},
		recorded{
			objects: "k3s", host: "https://127.0.0.1:6443", change: func(object *unstructured.Unstructured) {
				if object.GetName() == "kubernetes" {
					_ = unstructured.SetNestedField(object.Object, "10.53.0.1", "spec", "clusterIP") // k3s server --service-cidr
				}
			}, want: "Service default/kubernetes has address 10.53.0.1, which is not in 10.43.0.0/16; correct --service-cidr",
		},
	)
}
