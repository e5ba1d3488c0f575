// SPDX-License-Identifier: Apache-2.0

// Package build turns the component modules into programs, once: what it built is kept
// under the hash of everything that went in.
//
// components.go lists what is built and how (data), source.go hashes, build.go runs the Go
// tool, set.go puts one consistent set of programs and images together. Versions are not
// named here: each component's go.mod pins them. Its proof is build_test.go.
package build

import (
	"slices"

	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/scenario"
)

// Component is a Go module that yields programs.
type Component struct {
	Name string
	// Dir is the module's directory below the playground's, and Packages what to build in it.
	Dir      string
	Packages []string
	// Watch lists further directories, below the playground's, whose files are part of the
	// hash. Empty: all of Dir.
	Watch []string
	// CGO is on only where C is unavoidable: it changes the cache key of nearly every package.
	CGO  bool
	Tags string
	// LDFlags are added to "-s -w".
	LDFlags string
	// Plugins marks network plugins, which live in a directory of their own.
	Plugins bool
	// Extra marks what only some scenarios need. It is built when one of them does.
	Extra bool
	// Seconds is the duration of a first build on two idle cores, in the order of Components: later ones find many packages built.
	Seconds int
}

// kubeVersion is the version that the Kubernetes programs report; without it version checks
// between them fail.
const kubeVersion = "-X k8s.io/component-base/version.gitVersion=" + cluster.Version +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
	" -X k8s.io/client-go/pkg/version.gitVersion=" + cluster.Version

// metricsServerVersion must be that of the component's go.mod; build_test.go compares.
const metricsServerVersion = "-X k8s.io/component-base/version.gitVersion=v0.9.0 -X k8s.io/client-go/pkg/version.gitVersion=v0.9.0"

// Components in the order in which they are built: the longest first, so that a waiting
// user sees its progress first.
var Components = []Component{
	{Name: "kube", Seconds: 540, Dir: "components/kube", Packages: []string{"."}, LDFlags: kubeVersion},
	{
		Name: "containerd", Seconds: 45, Dir: "components/containerd", Tags: "no_btrfs no_zfs no_devmapper",
		Packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
	},
	{Name: "runc", Seconds: 10, Dir: "components/runc", Packages: []string{"github.com/opencontainers/runc"}, CGO: true, Tags: "seccomp"},
	{
		Name: "cni", Seconds: 5, Dir: "components/cni", Plugins: true,
		Packages: []string{
			"github.com/containernetworking/plugins/plugins/main/ptp",
			"github.com/containernetworking/plugins/plugins/main/bridge",
			"github.com/containernetworking/plugins/plugins/main/loopback",
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
			"github.com/containernetworking/plugins/plugins/meta/portmap",
		},
	},
	{Name: "coredns", Seconds: 45, Dir: "components/coredns", Packages: []string{"."}},
	{
		Name: "metrics-server", Seconds: 95, Dir: "components/metrics-server", LDFlags: metricsServerVersion,
		Packages: []string{"sigs.k8s.io/metrics-server/cmd/metrics-server"},
	},
	{Name: "demo", Seconds: 2, Dir: ".", Packages: []string{"./demo", "./demo/pause"}, Watch: []string{"demo"}},
	{Name: kwok, Seconds: 48, Dir: "components/kwok", Packages: []string{"sigs.k8s.io/kwok/cmd/kwok"}, Extra: true},
}

// kwok is the component whose nodes and pods have no processes.
const kwok = "kwok"

// Extras returns the names of the extra components that a cluster needs.
func Extras(clusters ...scenario.Cluster) (names []string) {
	for _, c := range clusters {
		for _, hollow := range c.Hollow {
			if hollow.Kind == scenario.HollowKwok && !slices.Contains(names, kwok) {
				names = append(names, kwok)
			}
		}
	}
	return names
}

// Programs are the names by which the multi-call program kube is called; each is a hard
// link, so that all share one copy of its code in memory.
var Programs = []string{
	"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubemark",
	"kubectl", "etcd", "cloud", "ready",
}

// AllExtras returns the names of all extra components.
func AllExtras() (names []string) {
	for _, c := range Components {
		if c.Extra {
			names = append(names, c.Name)
		}
	}
	return names
}
