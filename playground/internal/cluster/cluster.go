// SPDX-License-Identifier: Apache-2.0

// Package cluster decides what one Kubernetes cluster consists of: certificates,
// configuration files, and the command line of every component.
//
// It is pure: a topology and the places of the programs in, a Plan value out. Package
// lifecycle writes the files and starts the machines. Every flag that differs from a
// default carries its reason here. Its proof is the golden file testdata/rome.txt.
package cluster

import (
	"encoding/json"
	"fmt"
	"path"

	"liqo.io/liqo/playground/internal/pki"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/spec"
	"liqo.io/liqo/playground/internal/topology"
)

// Version is the Kubernetes version that component kube is built from.
const Version = "v1.36.3"

// Tools are the places of programs and images on the host.
type Tools struct {
	// Bin holds the programs, CNI the network plugins, Images the OCI archives.
	Bin, CNI, Images string
	// Kwok is the program, and KwokStages the file that defines how kwok's nodes and pods behave.
	Kwok, KwokStages string
	// PauseImage, CoreDNSImage and MetricsServerImage are names of images in Images.
	PauseImage, CoreDNSImage, MetricsServerImage string
}

// Host holds the properties of the machine that the plan depends on.
type Host struct {
	// RestrictOOMScore: the machine may not lower OOM scores (no CAP_SYS_RESOURCE), so
	// containers cannot get the scores they request.
	RestrictOOMScore bool
}

// Plan is a whole cluster as a value.
type Plan struct {
	Credentials  []Credential
	Files        []File
	ControlPlane spec.Machine
	Nodes        []spec.Machine
}

// Credential is a certificate to issue. Exactly one of Pair and Kubeconfig is set.
type Credential struct {
	// Authority is the base path of the issuing authority.
	Authority string
	Subject   pki.Subject
	// Pair is a base path: Pair.crt and Pair.key are written.
	Pair string
	// Kubeconfig is the path of a kubeconfig to write, for the role that User names.
	Kubeconfig string
}

// File is a file to write; its directory is created.
type File struct {
	Path string
	Text string
}

// Authorities are the base names, below the cluster's pki directory, of its authorities.
var Authorities = []string{"ca", "front-proxy-ca", "etcd-ca"}

// Images that the addons run; they are imported on the first node only, which is where the
// addons are pinned.
var (
	NodeImages  = []string{"pause"}
	AddonImages = []string{"coredns", "metrics-server"}
)

// New plans a cluster.
func New(c topology.Cluster, tools Tools, host Host) (Plan, error) {
	p := Plan{}
	if err := p.controlPlane(c, tools); err != nil {
		return Plan{}, err
	}
	for i, n := range c.Nodes {
		p.node(c, n, tools, host, i == 0)
	}
	return p, nil
}

// PKI is the base path of a key or certificate of the cluster.
func PKI(c topology.Cluster, name string) string { return path.Join(c.Dir, "pki", name) }

func (p *Plan) pair(c topology.Cluster, authority, at string, s pki.Subject) {
	p.Credentials = append(p.Credentials, Credential{Authority: PKI(c, authority), Subject: s, Pair: at})
}

func (p *Plan) kubeconfig(c topology.Cluster, at string, s pki.Subject) {
	p.Credentials = append(p.Credentials, Credential{Authority: PKI(c, "ca"), Subject: s, Kubeconfig: at})
}

func (p *Plan) file(at, text string) { p.Files = append(p.Files, File{Path: at, Text: text}) }

// cloudConfig is what program cloud of component kube reads; that module defines the form.
type cloudConfig struct {
	Cluster              string               `json:"cluster"`
	Kubeconfig           string               `json:"kubeconfig"`
	PodCIDR              string               `json:"podCIDR"`
	ServiceCIDR          string               `json:"serviceCIDR"`
	DNSIP                string               `json:"dnsIP"`
	ControlPlaneEndpoint string               `json:"controlPlaneEndpoint"`
	KubernetesVersion    string               `json:"kubernetesVersion"`
	Nodes                map[string]cloudNode `json:"nodes"`
	LoadBalancerPool     string               `json:"loadBalancerPool"`
	Images               cloudImages          `json:"images"`
	Hollow               []cloudHollow        `json:"hollow,omitempty"`
}

type cloudNode struct {
	NetNS     string `json:"netns"`
	Interface string `json:"interface"`
	Address   string `json:"address"`
	Root      string `json:"root"`
	// Labels are those that a kubelet may not give to its own node.
	Labels map[string]string `json:"labels,omitempty"`
}

type cloudImages struct {
	CoreDNS       string `json:"coredns"`
	MetricsServer string `json:"metricsServer"`
}

type cloudHollow struct {
	Kind     string            `json:"kind"`
	Prefix   string            `json:"prefix"`
	Count    int               `json:"count"`
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity map[string]string `json:"capacity,omitempty"`
}

func cloudJSON(c topology.Cluster, kubeconfig string, images cloudImages) (string, error) {
	config := cloudConfig{
		Cluster: c.Name, Kubeconfig: kubeconfig,
		PodCIDR: c.PodCIDR.String(), ServiceCIDR: c.ServiceCIDR.String(), DNSIP: c.DNS.String(),
		ControlPlaneEndpoint: fmt.Sprintf("%s:%d", c.ControlPlane.Address, topology.APIPort),
		KubernetesVersion:    Version, Nodes: map[string]cloudNode{}, Images: images,
		LoadBalancerPool: fmt.Sprintf("%s-%s", c.PoolFirst, c.PoolLast),
	}
	for _, n := range c.Nodes {
		node := cloudNode{NetNS: n.NetNS, Interface: topology.NodeLink, Address: n.Address.String(), Root: path.Join(n.Dir, "root")}
		if n.Role == scenario.RoleControlPlane {
			node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}
		config.Nodes[n.Name] = node
	}
	for i, h := range c.Hollow {
		if h.Kind == scenario.HollowKwok {
			config.Hollow = append(config.Hollow, cloudHollow{
				Kind: string(h.Kind), Prefix: hollowPrefix(c, i), Count: h.Count, Labels: h.Labels, Capacity: h.Capacity,
			})
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the cloud's configuration of %s: %w", c.Name, err)
	}
	return string(text) + "\n", nil
}

// hollowPrefix names the nodes of a group: rome-hollow-0, and rome-hollow2-0 of a second group.
func hollowPrefix(c topology.Cluster, group int) string {
	if group == 0 {
		return c.Name + "-hollow"
	}
	return fmt.Sprintf("%s-hollow%d", c.Name, group+1)
}
