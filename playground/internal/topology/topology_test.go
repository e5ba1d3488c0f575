// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
	"liqo.io/liqo/playground/scenarios"
)

func load(t *testing.T, name string) topology.Topology {
	t.Helper()
	data, err := fs.ReadFile(scenarios.Files, name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	top, err := topology.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestQuickStart(t *testing.T) {
	var got []string
	top := load(t, "quick-start.yaml")
	got = append(got, fmt.Sprintf("host %s router %s", top.HostAddress, top.RouterAddress))
	for _, c := range top.Clusters {
		got = append(got, fmt.Sprintf("%s %s gateway %s dns %s api %s %s pool %s-%s", c.Name, c.Bridge, c.Gateway, c.DNS, c.API, c.Server(), c.PoolFirst, c.PoolLast))
		for _, n := range c.Nodes {
			got = append(got, fmt.Sprintf("  %s %s %s %s %s", n.Name, n.Role, n.NetNS, n.Address, n.Port))
		}
	}
	want := `host 10.210.0.1 router 10.210.0.2
rome br1 gateway 10.210.1.1 dns 10.80.0.10 api 10.80.0.1 https://10.210.1.10:6443 pool 10.210.1.200-10.210.1.250
  rome-control-plane control-plane /run/netns/lpg-rome-control-plane 10.210.1.10 p1-10
  rome-worker worker /run/netns/lpg-rome-worker 10.210.1.11 p1-11
milan br2 gateway 10.210.2.1 dns 10.80.0.10 api 10.80.0.1 https://10.210.2.10:6443 pool 10.210.2.200-10.210.2.250
  milan-control-plane control-plane /run/netns/lpg-milan-control-plane 10.210.2.10 p2-10
  milan-worker worker /run/netns/lpg-milan-worker 10.210.2.11 p2-11`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// Every name must fit the kernel's limits and differ from every other, in each scenario.
func TestNamesFitAndDiffer(t *testing.T) {
	names, _ := fs.Glob(scenarios.Files, "*.yaml")
	for _, name := range names {
		seen := map[string]bool{}
		unique := func(kind, value string) {
			if seen[kind+value] {
				t.Errorf("%s: %s %s twice", name, kind, value)
			}
			seen[kind+value] = true
		}
		for _, c := range load(t, name).Clusters {
			unique("bridge", c.Bridge)
			unique("socket", topology.Socket(c.ControlPlaneMachine()))
			if len(c.Endpoints()) == 0 {
				t.Errorf("%s: %s has no namespace", name, c.Name)
			}
			for _, e := range c.Endpoints() {
				unique("address", e.Address.String())
				unique("port", e.Port)
				unique("namespace", e.NetNS)
				unique("socket", topology.Socket(c.NodeMachine(e.Name)))
				if len(e.Port) > 15 || len(topology.Socket(c.NodeMachine(e.Name))) > 107 {
					t.Errorf("%s: %+v is too long for the kernel", name, e)
				}
			}
		}
	}
}

func TestControlPlaneOnly(t *testing.T) {
	top := load(t, "control-plane-only.yaml")
	for _, c := range top.Clusters {
		if len(c.Nodes) != 0 || c.Total() != 0 || c.ControlPlane.Address.As4()[3] != 10 {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
	if scale, _ := load(t, "scale.yaml").Cluster("provider"); scale.Total() != 101 {
		t.Errorf("provider of the scale scenario has %d nodes in total", scale.Total())
	}
}
