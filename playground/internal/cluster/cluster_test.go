// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/spec"
	"liqo.io/liqo/playground/internal/topology"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const described = `clusters:
- name: rome
  audit: true
  kubeProxy: iptables
  labels: {topology.liqo.io/region: north}
  nodes:
  - role: control-plane
  - role: worker
    labels: {disk: fast}
  hollow:
  - {kind: kwok, count: 3, labels: {type: kwok}, capacity: {cpu: "4"}}
  - {kind: kubemark, count: 1}
`

var tools = cluster.Tools{
	Bin: "/set/bin", CNI: "/set/cni", Images: "/set/images", Kwok: "/set/kwok/kwok", KwokStages: "/set/kwok/stages.yaml",
	PauseImage: "pause:1", CoreDNSImage: "coredns:1", MetricsServerImage: "metrics-server:1",
}

func plan(t *testing.T, text string) (topology.Cluster, cluster.Plan) {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	top, err := topology.New(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cluster.New(top.Clusters[0], tools, cluster.Host{RestrictOOMScore: true})
	if err != nil {
		t.Fatal(err)
	}
	return top.Clusters[0], p
}

// The golden file shows a whole cluster as text; a change of a flag is read in its diff.
func TestGolden(t *testing.T) {
	_, p := plan(t, described)
	got := render(p)
	golden := filepath.Join("testdata", "rome.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the plan differs from %s; if that is meant, run the test with -update and read the diff. Now:\n%s", golden, got)
	}
}

func render(p cluster.Plan) string {
	var b strings.Builder
	for _, c := range p.Credentials {
		fmt.Fprintf(&b, "credential %s%s\n    user %s groups %v names %v addresses %v by %s\n",
			c.Pair, c.Kubeconfig, c.Subject.User, c.Subject.Groups, c.Subject.Names, c.Subject.IPs, filepath.Base(c.Authority))
	}
	for _, f := range p.Files {
		fmt.Fprintf(&b, "file %s\n    %s\n", f.Path, strings.ReplaceAll(strings.TrimSpace(f.Text), "\n", "\n    "))
	}
	for _, m := range append([]spec.Machine{p.ControlPlane}, p.Nodes...) {
		fmt.Fprintf(&b, "machine %s host %s namespace %s root %q\n", m.Name, m.Hostname, m.NetNS, m.Root)
		for _, bind := range m.Binds {
			fmt.Fprintf(&b, "    bind %s on %s\n", bind.Source, bind.Target)
		}
		for _, c := range m.Components {
			fmt.Fprintf(&b, "    %s once %t after %v env %v\n        %s\n", c.Name, c.Once, c.After, c.Env, strings.Join(c.Argv, "\n        "))
		}
	}
	return b.String()
}

// Everything that is YAML must parse, whatever the scenario.
func TestFilesAreYAML(t *testing.T) {
	_, p := plan(t, described)
	for _, f := range p.Files {
		if strings.HasSuffix(f.Path, ".yaml") {
			var into map[string]any
			if err := yaml.Unmarshal([]byte(f.Text), &into); err != nil {
				t.Errorf("%s: %v\n%s", f.Path, err, f.Text)
			}
		}
	}
}

// Every file that a command line names must be one the plan makes, or one that exists for
// other reasons; a typing error would otherwise show as a component that does not start.
func TestNamedFilesAreMade(t *testing.T) {
	c, p := plan(t, described)
	made := map[string]bool{cluster.AuditLog(c): true, filepath.Join(c.Dir, "etcd"): true, "/set/kwok/stages.yaml": true}
	for _, name := range append(cluster.Authorities, "sa") {
		made[cluster.PKI(c, name)+".crt"], made[cluster.PKI(c, name)+".key"] = true, true
	}
	for _, f := range p.Files {
		made[f.Path] = true
	}
	for _, x := range p.Credentials {
		made[x.Kubeconfig], made[x.Pair+".crt"], made[x.Pair+".key"] = true, true, true
	}
	for _, m := range append([]spec.Machine{p.ControlPlane}, p.Nodes...) {
		for _, b := range m.Binds {
			made[filepath.Join(m.Root, b.Target)] = true
		}
		for _, component := range m.Components {
			for _, arg := range component.Argv[1:] {
				_, value, found := strings.Cut(arg, "=")
				if !found || !strings.HasPrefix(value, "/") {
					continue
				}
				if !made[filepath.Join(m.Root, value)] {
					t.Errorf("%s of %s refers to %s, which the plan does not write", component.Name, m.Name, value)
				}
			}
		}
	}
}

func TestTaintOnlyBesideWorkers(t *testing.T) {
	const taint = "registerWithTaints"
	for workers, want := range map[string]bool{"": false, "  - role: worker\n": true} {
		_, p := plan(t, "clusters:\n- name: rome\n  nodes:\n  - role: control-plane\n"+workers)
		for _, f := range p.Files {
			if strings.HasSuffix(f.Path, "rome-control-plane/root/etc/kubernetes/kubelet.yaml") && strings.Contains(f.Text, taint) != want {
				t.Errorf("with workers %q: taint %t", workers, !want)
			}
		}
	}
}

func TestMonitorGraceOnlyWithoutHollowNodes(t *testing.T) {
	for hollow, want := range map[string]bool{"": true, "  hollow:\n  - {kind: kwok, count: 1}\n": false} {
		_, p := plan(t, "clusters:\n- name: rome\n  nodes: []\n"+hollow)
		manager, _ := p.ControlPlane.Component("kube-controller-manager")
		if strings.Contains(strings.Join(manager.Argv, " "), "--node-monitor-grace-period") != want {
			t.Errorf("with %q: short grace %t", hollow, !want)
		}
	}
}

func TestBurstsReachEveryCluster(t *testing.T) {
	for hollow, want := range map[string]bool{"": false, "  hollow:\n  - {kind: kwok, count: 1}\n": true} {
		_, p := plan(t, "clusters:\n- name: rome\n  nodes: []\n- name: milan\n  nodes: []\n"+hollow)
		server, _ := p.ControlPlane.Component("kube-apiserver")
		if slices.Contains(server.Env, "GOGC=100") != want {
			t.Errorf("beside a cluster with %q: %v, want GOGC=100 %t", hollow, server.Env, want)
		}
	}
}
