// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var (
	kubeadmConfig = Object{"v1", "ConfigMap", "kube-system", "kubeadm-config"}
	kubeletConfig = Object{"v1", "ConfigMap", "kube-system", "kubelet-config"}
)

// kubeadm records its configuration in ConfigMaps, and its control plane is visible as pods.
var kubeadm = Type{
	Name: "kubeadm", Flags: addresses,
	Recognised: func(f Facts) bool { return f.Objects[kubeadmConfig] != nil },
	Reads:      []Object{kubeadmConfig, kubeletConfig},
	Networks:   kubeadmNetworks,
	Complete:   completeKubeadm,
}

func kubeadmNetworks(f Facts) (pods, services string) {
	var cluster struct {
		Networking struct {
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
	}
	decode(f.Objects[kubeadmConfig], "ClusterConfiguration", &cluster)
	pods, services = arguments(f)
	return cmp.Or(cluster.Networking.PodSubnet, pods), cmp.Or(cluster.Networking.ServiceSubnet, services)
}

func completeKubeadm(f Facts, _ Overrides, p *Plan) {
	var kubelet struct {
		ServerTLSBootstrap bool `json:"serverTLSBootstrap"` // kubelets request serving certificates from the cluster
	}
	decode(f.Objects[kubeletConfig], "kubelet", &kubelet)
	p.SelfSignedKubelets = !kubelet.ServerTLSBootstrap
	if len(f.ControllerManager) > 0 {
		p.PodCIDR, p.ServiceCIDR = cmp.Or(p.PodCIDR, "172.16.0.0/16"), cmp.Or(p.ServiceCIDR, "10.96.0.0/12")
	}
}

// decode reads a key of a ConfigMap. A value that is not YAML states nothing.
func decode(record map[string]any, key string, into any) {
	text, _, _ := unstructured.NestedString(record, "data", key)
	_ = yaml.Unmarshal([]byte(text), into)
}
