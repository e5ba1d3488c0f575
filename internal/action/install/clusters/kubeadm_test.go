// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/internal/action/install/clusters"
)

func TestKubeadm(t *testing.T) {
	const host = "https://192.0.2.10:6443"
	set := func(name, key, value string) func(*unstructured.Unstructured) {
		return func(object *unstructured.Unstructured) {
			if object.GetKind() == "ConfigMap" && object.GetName() == name {
				_ = unstructured.SetNestedField(object.Object, value, "data", key)
			}
		}
	}
	usual := "10.244.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - kubeadm insecure"
	check(t, "kubeadm",
		recorded{objects: "kubeadm", host: host, want: usual},
		recorded{
			objects: "kubeadm", host: host, overrides: clusters.Overrides{ServiceType: "ClusterIP", APIServer: "https://api.example.org", AnyAPIServer: true},
			want: "10.244.0.0/16 10.96.0.0/12 https://api.example.org ClusterIP kubeadm insecure",
		},
		// Older versions: only the arguments of the controller manager.
		recorded{objects: "kubeadm", host: host, change: set("kubeadm-config", "ClusterConfiguration", "kind: ClusterConfiguration\n"), want: usual},
		recorded{
			objects: "kubeadm-calico", host: host,
			want: "pod kube-system/coredns-7c65d6cfc9-abcde has address 192.168.45.2, which is not in 172.16.0.0/16; correct --pod-cidr",
		},
		recorded{
			objects: "kubeadm-calico", host: host, overrides: clusters.Overrides{PodCIDR: "192.168.0.0/16"},
			want: "192.168.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - kubeadm insecure watch",
		},
		// What cannot be read states nothing: kubelets sign their own certificates.
		recorded{objects: "kubeadm", host: host, change: set("kubelet-config", "kubelet", "{"), want: usual},
		recorded{objects: "kubeadm", host: host, change: set("kubelet-config", "kubelet", ""), want: usual},
		recorded{objects: "kubeadm", host: host, change: set("kubelet-config", "kubelet", "serverTLSBootstrap: false"), want: usual},
		recorded{
			objects: "kubeadm", host: host, change: set("kubelet-config", "kubelet", "serverTLSBootstrap: true"),
			want: "10.244.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - kubeadm",
		},
	)
}
