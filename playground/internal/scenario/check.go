// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"liqo.io/liqo/playground/internal/fault"
)

// maxHollow bounds one group; beyond it the API server, not the playground, is what is tested.
const maxHollow = 2000

// dns1123 is stricter than Kubernetes (40 instead of 63) because node names and network
// namespaces append to a cluster's name.
var dns1123 = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// ValidClusterName returns the reason why a name cannot be a cluster's, or "".
func ValidClusterName(name string) string {
	switch {
	case name == "":
		return "a cluster needs a name"
	case name == fault.Host || name == "wan":
		return fmt.Sprintf("the name %q is taken by the playground itself; choose another", name)
	case !dns1123.MatchString(name):
		return fmt.Sprintf("%q is no cluster name: use up to 40 lower-case letters, digits and dashes, starting and ending with a letter or digit", name)
	}
	return ""
}

// lines finds the line of a value by its path: strings step into mappings, ints into lists.
// A path that ends early gives the line of its last known part.
type lines struct{ root *yaml.Node }

func (l lines) of(steps ...any) int {
	node := l.root
	for node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	for _, step := range steps {
		next := child(node, step)
		if next == nil {
			break
		}
		node = next
	}
	return node.Line
}

func child(node *yaml.Node, step any) *yaml.Node {
	switch s := step.(type) {
	case string:
		for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
			if node.Content[i].Value == s {
				return node.Content[i+1]
			}
		}
	case int:
		if node.Kind == yaml.SequenceNode && s < len(node.Content) {
			return node.Content[s]
		}
	}
	return nil
}

func (e *Error) add(line int, format string, args ...any) {
	e.Problems = append(e.Problems, Problem{Line: line, Text: fmt.Sprintf(format, args...)})
}

var yamlLine = regexp.MustCompile(`line (\d+)(?:, column \d+)?: (.*)`)

// yaml turns the library's error into problems; the line is part of the library's text.
func (e *Error) yaml(err error) *Error {
	texts := []string{err.Error()}
	var load *yaml.LoadErrors
	if errors.As(err, &load) {
		texts = texts[:0]
		for _, one := range load.Errors {
			texts = append(texts, one.Error())
		}
	}
	for _, text := range texts {
		line := 0
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			_, _ = fmt.Sscan(m[1], &line)
			text = m[2]
		}
		if field, _, found := strings.Cut(strings.TrimPrefix(text, "field "), " not found in type"); found {
			text = fmt.Sprintf("unknown field %q", field)
		}
		e.add(line, "%s", strings.TrimPrefix(text, "yaml: "))
	}
	return e
}

type checker struct {
	lines    lines
	problems *Error
}

func (c checker) scenario(f file) Scenario {
	s := Scenario{Network: c.prefix(f.Network, DefaultNetwork, "network")}
	if len(f.Clusters) == 0 {
		c.problems.add(c.lines.of("clusters"), "no clusters; name at least one below `clusters:`")
	}
	seen := map[string]bool{}
	for i, one := range f.Clusters {
		cluster := c.cluster(i, one)
		if seen[cluster.Name] {
			c.problems.add(c.lines.of("clusters", i, "name"), "cluster %q is there twice", cluster.Name)
		}
		seen[cluster.Name] = true
		s.Clusters = append(s.Clusters, cluster)
	}
	for i, one := range f.Links {
		s.Faults = c.link(i, one, seen, s.Faults)
	}
	if len(c.problems.Problems) == 0 {
		for _, p := range s.Overlaps() {
			line := c.lines.of("clusters", p.Cluster, p.Field)
			c.problems.add(line, "%s", p.Text)
		}
	}
	return s
}

func (c checker) cluster(i int, f clusterFile) Cluster {
	at := func(steps ...any) int { return c.lines.of(append([]any{"clusters", i}, steps...)...) }
	if why := ValidClusterName(f.Name); why != "" {
		c.problems.add(at("name"), "%s", why)
	}
	out := Cluster{
		Name:        f.Name,
		PodCIDR:     c.prefix(f.PodCIDR, DefaultPodCIDR, "clusters", i, "podCIDR").Masked(),
		ServiceCIDR: c.prefix(f.ServiceCIDR, DefaultServiceCIDR, "clusters", i, "serviceCIDR"),
		KubeProxy:   ProxyMode(f.KubeProxy),
		Audit:       f.Audit,
	}
	if f.NodeCIDR != "" {
		out.NodeCIDR = c.prefix(f.NodeCIDR, "", "clusters", i, "nodeCIDR").Masked()
		if out.NodeCIDR.IsValid() && out.NodeCIDR.Bits() != 24 {
			c.problems.add(at("nodeCIDR"), "node network %s is not a /24", f.NodeCIDR)
		}
	}
	switch out.KubeProxy {
	case "":
		out.KubeProxy = ProxyNFTables
	case ProxyNFTables, ProxyIPTables:
	default:
		c.problems.add(at("kubeProxy"), "kube-proxy mode %q: use nftables or iptables", f.KubeProxy)
	}
	for j, n := range f.Nodes {
		out.Nodes = append(out.Nodes, c.node(at("nodes", j, "role"), j, n, f.Labels))
	}
	total := len(out.Nodes)
	for j, h := range f.Hollow {
		out.Hollow = append(out.Hollow, c.hollow(at("hollow", j), h, f.Labels))
		total += h.Count
	}
	if bits := out.PodCIDR.Bits(); out.PodCIDR.IsValid() && (bits > 24 || total > 1<<(24-bits)) {
		c.problems.add(at("podCIDR"), "pod network %s has addresses for %d nodes (a /24 each), %d are requested", out.PodCIDR, subnets(bits), total)
	}
	return out
}

// subnets returns how many /24 a prefix of that length holds.
func subnets(bits int) int {
	if bits > 24 {
		return 0
	}
	return 1 << (24 - bits)
}

func (c checker) node(line, j int, f nodeFile, shared map[string]string) Node {
	role := Role(f.Role)
	switch {
	case j == 0 && role != RoleControlPlane:
		c.problems.add(line, "the first node must have `role: control-plane`")
	case j > 0 && role == RoleControlPlane:
		c.problems.add(line, "a second control-plane node; the playground runs one control plane for each cluster")
	case j > 0 && role != RoleWorker:
		c.problems.add(line, "role %q: use worker", f.Role)
	}
	return Node{Role: role, Labels: merge(shared, f.Labels)}
}

func (c checker) hollow(line int, f hollowFile, shared map[string]string) Hollow {
	if f.Count < 1 || f.Count > maxHollow {
		c.problems.add(line, "%d hollow nodes: use 1 to %d", f.Count, maxHollow)
	}
	switch HollowKind(f.Kind) {
	case HollowKwok:
	case HollowKubemark:
		if f.Count > 100 {
			c.problems.add(line, "%d kubemark nodes: each is a real kubelet of 24 MB; use up to 100, or kwok", f.Count)
		}
		if len(f.Capacity) > 0 {
			c.problems.add(line, "capacity of kubemark nodes is fixed in their code; use kwok or leave it out")
		}
	default:
		c.problems.add(line, "hollow nodes of kind %q: use kwok or kubemark", f.Kind)
	}
	return Hollow{Kind: HollowKind(f.Kind), Count: f.Count, Labels: merge(shared, f.Labels), Capacity: f.Capacity}
}

func (c checker) link(i int, f linkFile, clusters map[string]bool, faults fault.State) fault.State {
	at := func(field string) int { return c.lines.of("links", i, field) }
	if len(f.Between) != 2 || f.Between[0] == f.Between[1] {
		c.problems.add(at("between"), "a link is `between: [one, other]`, two different clusters or a cluster and host")
		return faults
	}
	a, b := f.Between[0], f.Between[1]
	for _, name := range f.Between {
		if name != fault.Host && !clusters[name] {
			c.problems.add(at("between"), "link to %q, which is no cluster of this scenario", name)
		}
	}
	if !faults.Link(a, b).Healthy() {
		c.problems.add(at("between"), "the link between %s and %s is there twice", a, b)
	}
	if f.Delay != "" {
		delay, err := fault.ParseDelay(f.Delay)
		c.report(at("delay"), err)
		faults = faults.SetDelay(a, b, delay)
	}
	if f.Loss != "" {
		loss, err := fault.ParseLoss(f.Loss)
		c.report(at("loss"), err)
		faults = faults.SetLoss(a, b, loss)
	}
	if f.Bandwidth != "" {
		rate, err := fault.ParseRate(f.Bandwidth)
		c.report(at("bandwidth"), err)
		faults = faults.SetBandwidth(a, b, rate)
	}
	return faults
}

func (c checker) report(line int, err error) {
	if err != nil {
		c.problems.add(line, "%v", err)
	}
}

func (c checker) prefix(text, otherwise string, steps ...any) netip.Prefix {
	if text == "" {
		text = otherwise
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is4() {
		c.problems.add(c.lines.of(steps...), "%q is no IPv4 prefix; write for example %s", text, DefaultPodCIDR)
		return netip.Prefix{}
	}
	return p
}

func merge(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = v
	}
	return out
}

func baseName(name string) string {
	base := path.Base(name)
	return strings.TrimSuffix(strings.TrimSuffix(base, ".yaml"), ".yml")
}
