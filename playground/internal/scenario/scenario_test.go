// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/scenarios"
)

func TestShippedScenarios(t *testing.T) {
	names, err := fs.Glob(scenarios.Files, "*.yaml")
	if err != nil || len(names) < 8 {
		t.Fatalf("shipped scenarios %v, error %v; the documented eight are expected", names, err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(scenarios.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenario.Parse(name, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Name != strings.TrimSuffix(name, ".yaml") {
			t.Errorf("%s is named %q", name, s.Name)
		}
		if _, err := s.Assign(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The documented quick start, value by value: tutorials print these addresses.
func TestQuickStart(t *testing.T) {
	data, _ := fs.ReadFile(scenarios.Files, "quick-start.yaml")
	s, err := scenario.Parse("quick-start.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	s, err = s.Assign()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ name, node string }{{"rome", "10.210.1.0/24"}, {"milan", "10.210.2.0/24"}} {
		c := s.Clusters[i]
		if c.Name != want.name || c.NodeCIDR.String() != want.node || c.PodCIDR.String() != "10.200.0.0/16" ||
			c.ServiceCIDR.String() != "10.90.0.0/12" || len(c.Nodes) != 2 {
			t.Errorf("cluster %d is %+v", i, c)
		}
	}
}

func TestRefused(t *testing.T) {
	const head = "clusters:\n- name: rome\n  nodes:\n  - role: control-plane\n"
	for name, c := range map[string]struct{ file, want string }{
		"empty":              {"", "x.yaml: the file is empty"},
		"no YAML":            {"clusters: [", "x.yaml:"},
		"two documents":      {head + "---\nclusters: []\n", "more than one YAML document"},
		"unknown field":      {head + "  podCidr: 10.0.0.0/8\n", `x.yaml:5: unknown field "podCidr"`},
		"unknown node field": {head + "    size: 3\n", `x.yaml:5: unknown field "size"`},
		"no clusters":        {"links: []\n", "no clusters"},
		"bad name":           {"clusters:\n- name: Rome_1\n", `x.yaml:2: "Rome_1" is no cluster name`},
		"reserved name":      {"clusters:\n- name: host\n", "taken by the playground"},
		"twice":              {head + "- name: rome\n", `x.yaml:5: cluster "rome" is there twice`},
		"bad prefix":         {head + "  podCIDR: 10.200.0.0\n", `x.yaml:5: "10.200.0.0" is no IPv4 prefix`},
		"IPv6":               {head + "  podCIDR: fd00::/64\n", `x.yaml:5: "fd00::/64" is no IPv4 prefix`},
		"pods too small":     {head + "  - role: worker\n  podCIDR: 10.200.0.0/24\n", "x.yaml:6: pod network 10.200.0.0/24 has addresses for 1 nodes"},
		"pods over services": {head + "  serviceCIDR: 10.200.4.0/22\n", "x.yaml:5: services 10.200.4.0/22 of rome overlap its pods"},
		"pods over nodes":    {head + "  podCIDR: 10.210.0.0/16\n", "x.yaml:5: pods 10.210.0.0/16 of rome overlap the node networks"},
		"unmasked services":  {head + "  serviceCIDR: 10.215.0.0/12\n", "(= 10.208.0.0/12)"},
		"node networks overlap": {
			head + "  nodeCIDR: 10.210.7.0/24\n- name: milan\n  nodeCIDR: 10.210.7.0/24\n",
			"x.yaml:7: node network 10.210.7.0/24 of milan overlaps 10.210.7.0/24 of rome",
		},
		"node network outside": {head + "  nodeCIDR: 10.211.7.0/24\n", "x.yaml:5: node network 10.211.7.0/24 of rome is not inside 10.210.0.0/16"},
		"node network of host": {head + "  nodeCIDR: 10.210.0.0/24\n", "which links the host"},
		"node network size":    {head + "  nodeCIDR: 10.210.4.0/23\n", "is not a /24"},
		"first is a worker":    {"clusters:\n- name: rome\n  nodes:\n  - role: worker\n", "x.yaml:4: the first node must have"},
		"two control planes":   {head + "  - role: control-plane\n", "x.yaml:5: a second control-plane node"},
		"unknown role":         {head + "  - role: master\n", `x.yaml:5: role "master"`},
		"proxy mode":           {head + "  kubeProxy: ipvs\n", `x.yaml:5: kube-proxy mode "ipvs"`},
		"hollow kind":          {head + "  hollow:\n  - kind: fake\n    count: 3\n", `x.yaml:6: hollow nodes of kind "fake"`},
		"hollow count":         {head + "  hollow:\n  - kind: kwok\n    count: 0\n", "x.yaml:6: 0 hollow nodes"},
		"link to no cluster":   {head + "links:\n- between: [rome, paris]\n", `x.yaml:6: link to "paris"`},
		"link to itself":       {head + "links:\n- between: [rome, rome]\n", "two different clusters"},
		"link delay":           {head + "links:\n- between: [rome, host]\n  delay: fast\n", `x.yaml:7: delay "fast"`},
		"link loss":            {head + "links:\n- between: [rome, host]\n  loss: 200%\n", `x.yaml:7: loss "200%"`},
		"link bandwidth":       {head + "links:\n- between: [rome, host]\n  bandwidth: 3\n", `x.yaml:7: bandwidth "3"`},
		"link twice": {
			head + "links:\n- between: [rome, host]\n  loss: 2%\n- between: [host, rome]\n",
			"x.yaml:8: the link between host and rome is there twice",
		},
		"jitter apart": {head + "links:\n- between: [rome, host]\n  jitter: 2ms\n", `unknown field "jitter"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := scenario.Parse("x.yaml", []byte(c.file))
			if err == nil {
				t.Fatalf("accepted as %+v", s)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("message %q lacks %q", err, c.want)
			}
		})
	}
}

func TestAssignFillsGapsAndRefusesWhenFull(t *testing.T) {
	s := scenario.Scenario{Network: netip.MustParsePrefix("10.210.0.0/22"), Clusters: []scenario.Cluster{
		{Name: "a", NodeCIDR: netip.MustParsePrefix("10.210.1.0/24")}, {Name: "b"}, {Name: "c"},
	}}
	got, err := s.Assign()
	if err != nil {
		t.Fatal(err)
	}
	if got.Clusters[1].NodeCIDR.String() != "10.210.2.0/24" || got.Clusters[2].NodeCIDR.String() != "10.210.3.0/24" {
		t.Errorf("assigned %v and %v", got.Clusters[1].NodeCIDR, got.Clusters[2].NodeCIDR)
	}
	if s.Clusters[1].NodeCIDR.IsValid() {
		t.Error("Assign changed its argument")
	}
	s.Clusters = append(s.Clusters, scenario.Cluster{Name: "d"})
	if _, err := s.Assign(); err == nil || !strings.Contains(err.Error(), "no free /24") {
		t.Errorf("four clusters in a /22: %v", err)
	}
}
