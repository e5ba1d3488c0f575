// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net/netip"
)

// Overlap is a conflict of networks: the cluster (index) and field that state it, and the reason.
type Overlap struct {
	Cluster int
	Field   string
	Text    string
}

// Overlaps lists the networks that conflict. Pod and service
// networks of different clusters may be equal (only the cluster's own nodes know them);
// node networks are routed between clusters, so they must differ from each other and from
// every pod and service network, or a pod could not reach the other cluster's nodes.
// Clusters whose node network is not assigned yet are checked for the rest only.
func (s Scenario) Overlaps() []Overlap {
	var out []Overlap
	report := func(i int, field, format string, args ...any) {
		out = append(out, Overlap{Cluster: i, Field: field, Text: fmt.Sprintf(format, args...)})
	}
	hostLink := netip.PrefixFrom(s.Network.Masked().Addr(), 24)
	for i, c := range s.Clusters {
		if c.PodCIDR.Overlaps(c.ServiceCIDR.Masked()) {
			report(i, "serviceCIDR", "services %s of %s overlap its pods %s", c.ServiceCIDR, c.Name, c.PodCIDR)
		}
		if s.Network.Overlaps(c.PodCIDR) {
			report(i, "podCIDR", "pods %s of %s overlap the node networks %s", c.PodCIDR, c.Name, s.Network)
		}
		if s.Network.Overlaps(c.ServiceCIDR.Masked()) {
			report(i, "serviceCIDR", "services %s (= %s) of %s overlap the node networks %s", c.ServiceCIDR, c.ServiceCIDR.Masked(), c.Name, s.Network)
		}
		if !c.NodeCIDR.IsValid() {
			continue
		}
		if !s.Network.Overlaps(c.NodeCIDR) || c.NodeCIDR.Bits() < s.Network.Bits() {
			report(i, "nodeCIDR", "node network %s of %s is not inside %s", c.NodeCIDR, c.Name, s.Network)
		}
		if hostLink.Overlaps(c.NodeCIDR) {
			report(i, "nodeCIDR", "node network %s of %s overlaps %s, which links the host", c.NodeCIDR, c.Name, hostLink)
		}
		for _, other := range s.Clusters[:i] {
			if other.NodeCIDR.IsValid() && other.NodeCIDR.Overlaps(c.NodeCIDR) {
				report(
					i, "nodeCIDR", "node network %s of %s overlaps %s of %s; node networks are routed between clusters and must differ", c.NodeCIDR,
					c.Name, other.NodeCIDR, other.Name,
				)
			}
		}
	}
	return out
}

// Assign returns the scenario with a node network for every cluster that has none: the
// lowest free /24. The error means that the network is full.
func (s Scenario) Assign() (Scenario, error) {
	taken := map[netip.Prefix]bool{}
	for _, c := range s.Clusters {
		taken[c.NodeCIDR] = true
	}
	clusters := append([]Cluster(nil), s.Clusters...)
	base := s.Network.Masked().Addr().As4()
	count := subnets(s.Network.Bits())
	for i := range clusters {
		for n := 1; !clusters[i].NodeCIDR.IsValid() && n < count; n++ {
			v := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8
			v += uint32(n) << 8
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), 0}), 24)
			if !taken[p] {
				clusters[i].NodeCIDR, taken[p] = p, true
			}
		}
		if !clusters[i].NodeCIDR.IsValid() {
			return Scenario{}, fmt.Errorf("no free /24 left in %s for cluster %s; use a larger `network:`", s.Network, clusters[i].Name)
		}
	}
	s.Clusters = clusters
	return s, nil
}
