// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"liqo.io/liqo/internal/kube/special"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/ipam"
)

// ErrNoPlan means that nothing can be planned, because this cluster or host itself is invalid.
var ErrNoPlan = errors.New("nothing can be planned")

// validSnapshot is a snapshot after validate: sorted, and without contradictions.
type validSnapshot struct {
	Snapshot
	// addresses of the nodes in the external network.
	addresses map[string]netip.Addr
}

// validate refuses what contradicts something else, each with an error that names the field and the values. A refused peer, node or mapping
// does not affect the others; an invalid cluster leaves nothing.
func validate(s Snapshot) (validSnapshot, error) {
	if len(s.Peers) == 0 {
		return validSnapshot{}, nil
	}
	g := validSnapshot{Snapshot: s}
	g.Local.PodCIDRs = onlyIPv4(s.Local.PodCIDRs)
	g.Local.VXLANPort = cmp.Or(s.Local.VXLANPort, hoststate.DefaultVXLANPort)
	if err := g.checkLocal(); err != nil {
		return validSnapshot{}, fmt.Errorf("%w: %w", ErrNoPlan, err)
	}
	var refused []error
	refuse := func(err error) bool {
		if err != nil {
			refused = append(refused, err)
		}
		return err == nil
	}
	g.validateNodes(refuse)
	g.Gateways = nil
	for _, gateway := range sorted(s.Gateways, func(a, b Gateway) int { return cmp.Compare(a.Lane, b.Lane) }) {
		if refuse(g.checkGatewayPod(gateway)) {
			g.Gateways = append(g.Gateways, gateway)
		}
	}
	g.Peers = nil
	for _, peer := range sorted(s.Peers, func(a, b Peer) int { return cmp.Compare(a.ClusterID, b.ClusterID) }) {
		if err := g.checkPeer(peer); refuse(wrap(err, "peer %s (%s)", peer.Name, peer.ClusterID)) {
			g.Peers = append(g.Peers, normalized(peer))
		}
	}
	g.Mappings = nil
	for _, mapping := range sorted(s.Mappings, func(a, b Mapping) int { return a.External.Compare(b.External) }) {
		if refuse(g.checkMapping(mapping)) {
			g.Mappings = append(g.Mappings, mapping)
		}
	}
	return g, errors.Join(refused...)
}

func (g validSnapshot) checkLocal() error {
	if len(g.Local.PodCIDRs) == 0 {
		return errors.New("local.podCIDRs: no IPv4 network; want at least one")
	}
	for _, network := range g.Local.PodCIDRs {
		if err := checkNetwork(network); err != nil {
			return fmt.Errorf("local.podCIDRs: %w", err)
		}
		if network.Overlaps(g.Local.External) {
			return fmt.Errorf("local.external: %s overlaps the pods' network %s", g.Local.External, network)
		}
	}
	if err := checkNetwork(g.Local.External); err != nil {
		return fmt.Errorf("local.external: %w", err)
	}
	if most := 32 - 4; g.Local.External.Bits() > most {
		return fmt.Errorf("local.external: %s is too small for gateways, nodes and mappings; it must be a /%d or larger", g.Local.External, most)
	}
	if g.Self.PodMTU < minMTU+Overhead || g.Self.PodMTU > 1<<16-1 {
		return fmt.Errorf("self.podMTU: %d is not between %d and %d", g.Self.PodMTU, minMTU+Overhead, 1<<16-1)
	}
	return nil
}

// checkGateway checks the host itself, if it is a gateway.
func (g validSnapshot) checkGateway() error {
	switch self := g.Self; {
	case !self.Address.Is4():
		return fmt.Errorf("%w: self.address: %q is not an IPv4 address", ErrNoPlan, self.Address)
	case self.Lane < 0 || self.Lane >= ipam.MaxLanes:
		return fmt.Errorf("%w: self.lane: %d is not between 0 and %d", ErrNoPlan, self.Lane, ipam.MaxLanes-1)
	case self.Uplink == "":
		return fmt.Errorf("%w: self.uplink: empty; want the name of the pod's link", ErrNoPlan)
	case self.ListenPort < 1 || self.ListenPort > 1<<16-1:
		return fmt.Errorf("%w: self.listenPort: %d is not a port", ErrNoPlan, self.ListenPort)
	}
	return nil
}

// validateNodes keeps the nodes that can be planned. Addresses are assigned among all nodes, so that the address of a node does not
// depend on whether another node is complete yet.
func (g *validSnapshot) validateNodes(refuse func(error) bool) {
	nodes := sorted(g.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	described := make([]ipam.Node, 0, len(nodes))
	for i := range nodes {
		nodes[i].PodCIDRs = onlyIPv4(nodes[i].PodCIDRs)
		slices.SortFunc(nodes[i].PodCIDRs, netip.Prefix.Compare)
		nodes[i].Pods = sorted(nodes[i].Pods, netip.Addr.Compare)
		described = append(described, ipam.Node{Name: nodes[i].Name, PodCIDRs: nodes[i].PodCIDRs})
	}
	g.addresses = ipam.NodeAddresses(g.Local.External, g.Local.PodCIDRs[0], described)
	g.Nodes = slices.DeleteFunc(nodes, func(node Node) bool { return !refuse(wrap(g.checkNode(node), "node %s", node.Name)) })
}

func (g validSnapshot) checkNode(node Node) error {
	if !node.Address.Is4() {
		return fmt.Errorf("address: %q is not an IPv4 address", node.Address)
	}
	for _, network := range node.PodCIDRs {
		if err := checkNetwork(network); err != nil {
			return fmt.Errorf("podCIDRs: %w", err)
		}
		if network.Overlaps(g.Local.External) {
			return fmt.Errorf("podCIDRs: %s overlaps local.external %s", network, g.Local.External)
		}
	}
	if !g.addresses[node.Name].IsValid() {
		return fmt.Errorf("local.external: %s has no free address for this node", g.Local.External)
	}
	return nil
}

func (g validSnapshot) checkGatewayPod(gateway Gateway) error {
	switch {
	case gateway.Lane < 0 || gateway.Lane >= ipam.MaxLanes:
		return fmt.Errorf("gateway %d: lane: not between 0 and %d", gateway.Lane, ipam.MaxLanes-1)
	case !gateway.Address.Is4():
		return fmt.Errorf("gateway %d: address: %q is not an IPv4 address", gateway.Lane, gateway.Address)
	case slices.ContainsFunc(g.Gateways, func(other Gateway) bool { return other.Lane == gateway.Lane }):
		return fmt.Errorf("gateway %d: lane: another gateway of this lane exists, ignoring the one at %s", gateway.Lane, gateway.Address)
	}
	return nil
}

// checkPeer checks one peer against the cluster and the peers accepted before.
func (g validSnapshot) checkPeer(peer Peer) error {
	if !slices.Contains(g.Local.PodCIDRs, peer.Pods.From) {
		return fmt.Errorf("pods.from: %s is not one of local.podCIDRs %v", peer.Pods.From, g.Local.PodCIDRs)
	}
	if peer.External.From != g.Local.External {
		return fmt.Errorf("external.from: %s is not local.external %s", peer.External.From, g.Local.External)
	}
	for i, swap := range own(peer) {
		field := []string{"pods", "external"}[i]
		if err := checkNetwork(swap.To); err != nil {
			return fmt.Errorf("%s.to: %w", field, err)
		}
		if swap.From.Bits() != swap.To.Bits() {
			return fmt.Errorf("%s: %s and %s have different sizes", field, swap.From, swap.To)
		}
	}
	if peer.Pods.To.Overlaps(peer.External.To) {
		return fmt.Errorf("pods.to and external.to: %s and %s overlap", peer.Pods.To, peer.External.To)
	}
	for i, network := range remote(peer) {
		field := []string{"remotePods", "remoteExternal"}[i]
		if err := checkNetwork(network); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if what := g.overlapping(network); what != "" {
			return fmt.Errorf("%s: %s overlaps %s", field, network, what)
		}
	}
	if peer.RemotePods.Overlaps(peer.RemoteExternal) {
		return fmt.Errorf("remotePods and remoteExternal: %s and %s overlap", peer.RemotePods, peer.RemoteExternal)
	}
	return g.checkLanes(peer)
}

// overlapping names what a network overlaps in this cluster or in the peers accepted before; empty if nothing.
func (g validSnapshot) overlapping(network netip.Prefix) string {
	for _, pods := range g.Local.PodCIDRs {
		if network.Overlaps(pods) {
			return "local.podCIDRs " + pods.String()
		}
	}
	if network.Overlaps(g.Local.External) {
		return "local.external " + g.Local.External.String()
	}
	for _, node := range g.Nodes {
		if network.Contains(node.Address) {
			return fmt.Sprintf("the address %s of node %s", node.Address, node.Name)
		}
		for _, pods := range node.PodCIDRs {
			if network.Overlaps(pods) {
				return fmt.Sprintf("the pods' network %s of node %s", pods, node.Name)
			}
		}
	}
	for _, gateway := range g.Gateways {
		if network.Contains(gateway.Address) {
			return fmt.Sprintf("the address %s of gateway %d", gateway.Address, gateway.Lane)
		}
	}
	for _, peer := range g.Peers {
		for _, other := range remote(peer) {
			if network.Overlaps(other) {
				return fmt.Sprintf("%s of peer %s (%s)", other, peer.Name, peer.ClusterID)
			}
		}
	}
	return ""
}

func (g validSnapshot) checkLanes(peer Peer) error {
	if peer.ClusterID == "" {
		return errors.New("clusterID: empty")
	}
	numbers := map[int]bool{}
	for _, lane := range peer.Lanes {
		if lane.Number < 0 || lane.Number >= ipam.MaxLanes || numbers[lane.Number] {
			return fmt.Errorf("lanes: number %d occurs twice, or is not between 0 and %d", lane.Number, ipam.MaxLanes-1)
		}
		numbers[lane.Number] = true
		if lane.Endpoint.IsValid() && (lane.Endpoint.Port() == 0 || lane.Endpoint.Addr().IsUnspecified() || lane.Endpoint.Addr().IsMulticast()) {
			return fmt.Errorf("lanes[%d].endpoint: %s cannot be dialled", lane.Number, lane.Endpoint)
		}
		for _, key := range lane.Keys {
			if raw, err := base64.StdEncoding.Strict().DecodeString(key); err != nil || len(raw) != 32 {
				return fmt.Errorf("lanes[%d].keys: %.50q is not 32 bytes in base64", lane.Number, key)
			}
			if key == g.Self.PublicKey {
				return fmt.Errorf("lanes[%d].keys: %s is our own key", lane.Number, key)
			}
			for _, other := range g.Peers {
				for _, theirs := range other.Lanes {
					if slices.Contains(theirs.Keys, key) {
						return fmt.Errorf("lanes[%d].keys: %s is also a key of peer %s (%s)", lane.Number, key, other.Name, other.ClusterID)
					}
				}
			}
		}
	}
	return nil
}

func (g validSnapshot) checkMapping(mapping Mapping) error {
	switch {
	case !ipam.IsMappable(g.Local.External, mapping.External):
		return fmt.Errorf("mapping %s: external: not one of the addresses of local.external %s that are reserved for mappings", mapping.External, g.Local.External)
	case !mapping.Target.Is4() || mapping.Target.IsUnspecified() || mapping.Target.IsLoopback() || mapping.Target.IsMulticast():
		return fmt.Errorf("mapping %s: target: %q is not an IPv4 address of a host", mapping.External, mapping.Target)
	case slices.ContainsFunc(mapping.Ports, func(port MappingPort) bool { return port.Port == 0 || port.Protocol != "tcp" && port.Protocol != "udp" }):
		return fmt.Errorf("mapping %s: ports: %v has one that is neither TCP nor UDP, or has no number", mapping.External, mapping.Ports)
	case slices.ContainsFunc(g.Mappings, func(other Mapping) bool { return other.External == mapping.External }):
		return fmt.Errorf("mapping %s: external: mapped twice, ignoring target %s", mapping.External, mapping.Target)
	}
	return nil
}

func checkNetwork(network netip.Prefix) error {
	if !network.IsValid() || !network.Addr().Is4() {
		return fmt.Errorf("%q is not an IPv4 network", network)
	}
	if network != network.Masked() {
		return fmt.Errorf("%s has bits beyond its length, it should be %s", network, network.Masked())
	}
	for _, one := range special.IPv4() {
		if network.Overlaps(one) {
			return fmt.Errorf("%s overlaps the reserved network %s", network, one)
		}
	}
	return nil
}

// normalized returns a peer with its lanes sorted and without duplicate keys.
func normalized(peer Peer) Peer {
	peer.Lanes = sorted(peer.Lanes, func(a, b PeerLane) int { return cmp.Compare(a.Number, b.Number) })
	for i := range peer.Lanes {
		var keys []string
		for _, key := range peer.Lanes[i].Keys {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		peer.Lanes[i].Keys = keys
	}
	return peer
}

// onlyIPv4 returns the IPv4 networks of a list, in its order.
func onlyIPv4(networks []netip.Prefix) (four []netip.Prefix) {
	for _, network := range networks {
		if !network.Addr().Is6() {
			four = append(four, network)
		}
	}
	return four
}

func sorted[T any](all []T, compare func(a, b T) int) []T {
	all = slices.Clone(all)
	slices.SortStableFunc(all, compare)
	return all
}

// wrap adds the place of an error; nil stays nil.
func wrap(err error, format string, where ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, where...), err)
}
