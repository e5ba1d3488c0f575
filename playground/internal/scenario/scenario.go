// SPDX-License-Identifier: Apache-2.0

// Package scenario reads the description of a playground: its clusters, their nodes and the
// links between them.
//
// It is pure: bytes in, a checked value or an error with the line out. It knows no
// addresses of single nodes (package topology), no programs and no kernel. Its proof is
// scenario_test.go, which also reads every scenario that ships.
package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"go.yaml.in/yaml/v4"

	"liqo.io/liqo/playground/internal/fault"
)

// Defaults of a scenario file; the CIDRs are those of the documented tutorials, equal in
// all clusters because overlapping networks are the hard and the common case.
const (
	DefaultNetwork     = "10.210.0.0/16"
	DefaultPodCIDR     = "10.200.0.0/16"
	DefaultServiceCIDR = "10.90.0.0/12"
)

// Scenario is a whole playground.
type Scenario struct {
	// Name is the file's name without extension; it is what `status` shows.
	Name string
	// Network holds every node network; the first /24 of it links the host.
	Network  netip.Prefix
	Clusters []Cluster
	// Faults shape what passes between two clusters, or between a cluster and the host.
	Faults fault.State
}

// Cluster is one Kubernetes cluster.
type Cluster struct {
	Name string
	// PodCIDR is IPv4 and holds a /24 for each node, hollow ones included.
	PodCIDR netip.Prefix
	// ServiceCIDR is kept as written (10.90.0.0/12 is legal and documented, although its
	// network address is 10.80.0.0); use ServiceCIDR.Masked() for arithmetic.
	ServiceCIDR netip.Prefix
	// NodeCIDR is a /24 inside Scenario.Network; the zero value means "assign one".
	NodeCIDR  netip.Prefix
	KubeProxy ProxyMode
	// Audit writes an API audit log (level Metadata) of the API server.
	Audit bool
	// Nodes is empty for a cluster that is a control plane only; otherwise the first one,
	// and only the first one, has RoleControlPlane.
	Nodes  []Node
	Hollow []Hollow
}

// ProxyMode is the mode of kube-proxy.
type ProxyMode string

// Modes of kube-proxy that the playground knows; IPVS needs kernel modules most machines
// of this kind lack, and is on its way out of Kubernetes.
const (
	ProxyNFTables ProxyMode = "nftables"
	ProxyIPTables ProxyMode = "iptables"
)

// Role of a real node.
type Role string

// Roles of real nodes.
const (
	RoleControlPlane Role = "control-plane"
	RoleWorker       Role = "worker"
)

// Node is a real node: kubelet, containerd, kube-proxy.
type Node struct {
	Role   Role
	Labels map[string]string
}

// HollowKind names the program that simulates the kubelet of a hollow node.
type HollowKind string

// Kinds of hollow nodes: kwok is one process for all of them and scales to thousands of
// pods; kubemark runs the real kubelet code with a fake runtime at 24 MB for each node.
const (
	HollowKwok     HollowKind = "kwok"
	HollowKubemark HollowKind = "kubemark"
)

// Hollow is a group of nodes without containers.
type Hollow struct {
	Kind     HollowKind
	Count    int
	Labels   map[string]string
	Capacity map[string]string
}

// file is the form on disk. Every value that is checked after decoding is a string here,
// so that one place (check.go) reports it with its line.
type file struct {
	Network  string        `yaml:"network"`
	Clusters []clusterFile `yaml:"clusters"`
	Links    []linkFile    `yaml:"links"`
}

type clusterFile struct {
	Name        string            `yaml:"name"`
	PodCIDR     string            `yaml:"podCIDR"`
	ServiceCIDR string            `yaml:"serviceCIDR"`
	NodeCIDR    string            `yaml:"nodeCIDR"`
	KubeProxy   string            `yaml:"kubeProxy"`
	Audit       bool              `yaml:"audit"`
	Labels      map[string]string `yaml:"labels"`
	Nodes       []nodeFile        `yaml:"nodes"`
	Hollow      []hollowFile      `yaml:"hollow"`
}

type nodeFile struct {
	Role   string            `yaml:"role"`
	Labels map[string]string `yaml:"labels"`
}

type hollowFile struct {
	Kind     string            `yaml:"kind"`
	Count    int               `yaml:"count"`
	Labels   map[string]string `yaml:"labels"`
	Capacity map[string]string `yaml:"capacity"`
}

type linkFile struct {
	Between   []string `yaml:"between"`
	Delay     string   `yaml:"delay"`
	Loss      string   `yaml:"loss"`
	Bandwidth string   `yaml:"bandwidth"`
}

// Error is one or more problems of a scenario file, each with its line.
type Error struct {
	File     string
	Problems []Problem
}

// Problem is one thing wrong in a scenario file. Line counts from 1; 0 means the whole file.
type Problem struct {
	Line int
	Text string
}

func (e *Error) Error() string {
	var b bytes.Buffer
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("\n")
		}
		if p.Line > 0 {
			fmt.Fprintf(&b, "%s:%d: %s", e.File, p.Line, p.Text)
		} else {
			fmt.Fprintf(&b, "%s: %s", e.File, p.Text)
		}
	}
	return b.String()
}

// Parse reads a scenario file. name is used in messages and, without directory and
// extension, as the scenario's name. The error is an *Error that lists every problem.
func Parse(name string, data []byte) (Scenario, error) {
	problems := &Error{File: name}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return Scenario{}, problems.yaml(err)
	}
	var f file
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			problems.add(0, "the file is empty; a scenario has at least `clusters:`")
			return Scenario{}, problems
		}
		return Scenario{}, problems.yaml(err)
	}
	if err := decoder.Decode(new(file)); !errors.Is(err, io.EOF) {
		problems.add(0, "more than one YAML document; a scenario is exactly one")
		return Scenario{}, problems
	}
	c := checker{lines: lines{&root}, problems: problems}
	s := c.scenario(f)
	s.Name = baseName(name)
	if len(problems.Problems) > 0 {
		return Scenario{}, problems
	}
	return s, nil
}
