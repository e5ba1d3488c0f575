// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/nodes"
	"liqo.io/liqo/internal/network/reach"
	"liqo.io/liqo/internal/network/tenants"
)

// Reader rebuilds the pools from the objects with the assignments. It caches only the external network, which never changes.
type Reader struct {
	Options Options
	live    client.Reader
	// own caches the endpoints of our API server and the Services of our gateways.
	own       client.Reader
	tenancies *tenants.Reader

	mu       sync.Mutex
	external netip.Prefix
}

// New returns the pools of this cluster: own caches the endpoints of the API server and the Services of the gateways.
func New(o *Options, live, own client.Reader, peers *tenants.Reader) *Reader {
	return &Reader{Options: *o, live: live, own: own, tenancies: peers}
}

// Records are the objects that carry assignments.
type Records struct {
	Nodes   []corev1.Node
	Configs []netv1alpha1.NetworkConfig
	Tunnels []netv1alpha1.TunnelEndpoint
	FCs     []discoveryv1alpha1.ForeignCluster
	// Reports are those of the agents on nodes.
	Reports []netv1alpha1.NodeReport
}

// Records lists them from a cache or live. It keeps only the NetworkConfigs in use: ours and the peer's in each tenant namespace.
func (b *Reader) Records(ctx context.Context, from client.Reader) (*Records, error) {
	reports, err := b.NodeReports(ctx)
	if err != nil {
		return nil, err
	}
	local := b.tenancies.Local
	var nodes corev1.NodeList
	var configs netv1alpha1.NetworkConfigList
	var tunnels netv1alpha1.TunnelEndpointList
	var fcs discoveryv1alpha1.ForeignClusterList
	for _, list := range []client.ObjectList{&nodes, &configs, &tunnels, &fcs} {
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list objects with network assignments: %w", err)
		}
	}
	theirs := map[types.NamespacedName]bool{}
	for i := range fcs.Items {
		if fc := &fcs.Items[i]; fc.Spec.ClusterIdentity != nil {
			theirs[types.NamespacedName{Namespace: fc.Status.TenantNamespace.Local, Name: fc.Spec.ClusterIdentity.NetworkConfigName()}] = true
		}
	}
	var counts []netv1alpha1.NetworkConfig
	for i := range configs.Items {
		config := &configs.Items[i]
		if tenants.IsOwn(config) && config.Name == local.NetworkConfigName() || tenants.IsCopy(config) && theirs[client.ObjectKeyFromObject(config)] {
			counts = append(counts, *config)
		}
	}
	return &Records{Nodes: nodes.Items, Configs: counts, Tunnels: tunnels.Items, FCs: fcs.Items, Reports: reports}, nil
}

// External returns this cluster's external network, chosen once.
func (b *Reader) External(ctx context.Context) (netip.Prefix, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.external.IsValid() {
		return b.external, nil
	}
	all, err := b.Records(ctx, b.live)
	if err != nil {
		return netip.Prefix{}, err
	}
	var mappings netv1alpha1.IPMappingList
	if err := b.live.List(ctx, &mappings); err != nil {
		return netip.Prefix{}, fmt.Errorf("list address mappings: %w", err)
	}
	bits := b.Options.PodCIDRs[0].Bits()
	pools, err := b.Empty(ctx, all)
	if err != nil {
		return netip.Prefix{}, err
	}
	word := b.WordsOf(all)
	for _, a := range agreed(all, word) {
		pools.Restore(a)
	}
	// A network that we announced is ours, whatever a peer has claimed since. So recall comes before the answers to claims.
	external, ok := pools.Recall(bits, onRecord(all, mappings.Items, bits))
	if !ok {
		for _, a := range answered(all, word) {
			pools.Restore(a)
		}
		if external, err = pools.External(bits, nil); err != nil {
			return netip.Prefix{}, fmt.Errorf("choose the external network: %w", err)
		}
	}
	b.external = external
	return external, nil
}

// onRecord returns the external networks that were announced to peers, the oldest first.
func onRecord(all *Records, mappings []netv1alpha1.IPMapping, bits int) (networks []netip.Prefix) {
	add := func(text string) {
		if network, err := netip.ParsePrefix(text); err == nil && !slices.Contains(networks, network) {
			networks = append(networks, network)
		}
	}
	for _, tunnel := range byAge(all.Tunnels) {
		add(string(tunnel.Spec.LocalExternalCIDR))
	}
	for _, config := range byAge(all.Configs) {
		if tenants.IsOwn(config) {
			add(string(config.Spec.ExternalCIDR))
		}
	}
	for i := range mappings {
		if address, err := netip.ParseAddr(mappings[i].Status.ExternalAddress); err == nil {
			if network, err := address.Prefix(bits); err == nil {
				add(network.String())
			}
		}
	}
	return networks
}

// byAge sorts objects, the oldest first.
func byAge[T any, P interface {
	*T
	client.Object
}](items []T,
) []P {
	var sorted []P
	for i := range items {
		sorted = append(sorted, P(&items[i]))
	}
	slices.SortStableFunc(sorted, func(a, b P) int {
		switch {
		case tenants.Older(a, b):
			return -1
		case tenants.Older(b, a):
			return 1
		default:
			return 0
		}
	})
	return sorted
}

// Empty returns pools without assignments. Our own networks and addresses are used; addresses of peers are only avoided.
func (b *Reader) Empty(ctx context.Context, all *Records) (*ipam.Pools, error) {
	pools := &ipam.Pools{Networks: b.Options.pools(), Used: b.Options.OwnNetworks()}
	for _, network := range b.Options.Reserved {
		pools.Used = append(pools.Used, ipam.Use{Name: ipam.ReservedName, Network: network})
	}
	for i := range all.Nodes {
		node := &all.Nodes[i]
		if nodes.IsVirtual(node) {
			continue
		}
		for _, address := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(address.Address); err == nil && ip.Is4() {
				pools.Used = append(pools.Used, ipam.Use{Name: "address of node " + node.Name, Network: netip.PrefixFrom(ip, ip.BitLen())})
			}
		}
	}
	servers, err := apiServers(ctx, b.own)
	if err != nil {
		return nil, err
	}
	var services corev1.ServiceList
	if err := b.own.List(ctx, &services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Services of gateways: %w", err)
	}
	pools.Reached = reach.Reported(all.Reports, all.Nodes, pools.Used)
	pools.Used = append(pools.Used, servers...)
	pools.Avoid = knownAddresses(all.Tunnels, all.FCs, services.Items)
	for i := range all.Tunnels {
		if meta.FindStatusCondition(all.Tunnels[i].Status.Conditions, netv1alpha1.ConditionNetworksFree) != nil {
			pools.Stay = append(pools.Stay, all.Tunnels[i].Namespace)
		}
	}
	return pools, nil
}

// Pools returns the allocator with all recorded assignments.
func (b *Reader) Pools(ctx context.Context, all *Records) (*ipam.Pools, error) {
	external, err := b.External(ctx)
	if err != nil {
		return nil, err
	}
	pools, err := b.Empty(ctx, all)
	if err != nil {
		return nil, err
	}
	pools.Used = append(pools.Used, ipam.Use{Name: "external network", Network: external})
	word := b.WordsOf(all)
	for _, a := range slices.Concat(agreed(all, word), answered(all, word)) { // the most trusted first
		pools.Restore(a)
	}
	return pools, nil
}

// agreed returns the assignments of TunnelEndpoints, which only we write.
func agreed(all *Records, word Words) (found []ipam.Assignment) {
	for _, tunnel := range byAge(all.Tunnels) {
		found = word.assigned(found, tunnel.Namespace, ipam.PodNetwork, tunnel.Spec.RemotePodCIDR, tunnel.Spec.RemoteNATPodCIDR)
		found = word.assigned(found, tunnel.Namespace, ipam.ExternalNetwork, tunnel.Spec.RemoteExternalCIDR, tunnel.Spec.RemoteNATExternalCIDR)
	}
	for i := range found {
		found[i].Agreed = true
	}
	return found
}

// answered returns the assignments in our answers to peers. A peer writes into the same namespace, so they rank after agreed ones, and hold only
// for the generation that they answer: with a later spec they would assign whatever the peer claims.
func answered(all *Records, word Words) (found []ipam.Assignment) {
	for _, config := range byAge(all.Configs) {
		if tenants.IsCopy(config) && config.Status.Processed && config.Status.ObservedGeneration == config.Generation {
			found = word.assigned(found, config.Namespace, ipam.PodNetwork, config.Spec.PodCIDR, config.Status.PodCIDRNAT)
			found = word.assigned(found, config.Namespace, ipam.ExternalNetwork, config.Spec.ExternalCIDR, config.Status.ExternalCIDRNAT)
		}
	}
	return found
}

// assigned appends an assignment if it is valid. Its owner is the tenant namespace, which no peer can choose.
func (w Words) assigned(found []ipam.Assignment, owner string, kind ipam.Kind, own netv1alpha1.CIDR, nat string) []ipam.Assignment {
	want, err := netip.ParsePrefix(string(own))
	if err != nil || nat == "" {
		return found
	}
	have, err := netip.ParsePrefix(networks.Seen(own, nat))
	if err != nil {
		return found
	}
	return append(found, ipam.Assignment{Owner: owner, Kind: kind, Want: want, Have: have, Written: w.Of(owner, want) != ""})
}

// LaneKey is a public key on a lane. Each lane has a device of its own, so equal keys on two lanes do not conflict.
type LaneKey struct {
	Lane int32
	Key  string
}

// KeysOfOthers returns the public keys of gateways that were agreed with other peers, with the name of the owner.
func KeysOfOthers(all *Records, namespace string) map[LaneKey]string {
	keys := map[LaneKey]string{}
	for i := range all.Tunnels {
		tunnel := &all.Tunnels[i]
		for j := range tunnel.Spec.Lanes {
			if lane := &tunnel.Spec.Lanes[j]; tunnel.Namespace != namespace {
				keys[LaneKey{lane.Number, lane.PublicKey}] = "cluster " + tunnel.Spec.ClusterIdentity.ClusterName
			}
		}
	}
	return keys
}

// Options are the networks of this cluster, and what administrators set apart for those of peers.
type Options struct {
	// PodCIDRs and ServiceCIDRs are the networks of this cluster. Peers reach the first pod network only.
	PodCIDRs, ServiceCIDRs []netip.Prefix
	// RemapPools and Pools are what the networks of peers are remapped to, in this order; Reserved never is. No RemapPools: ipam.DefaultNetworks.
	RemapPools, Pools, Reserved []netip.Prefix
	// Unmapped are networks of peers that are used as they are, whichever peer announces one inside of them.
	Unmapped []netip.Prefix
}

// Validate refuses networks that cannot be those of this cluster.
func (o *Options) Validate() error {
	if len(o.PodCIDRs) == 0 {
		return errors.New(
			"no pod network is set; set --pod-cidr to what `kubectl cluster-info dump | grep cluster-cidr` shows, or to the setting of the network plugin",
		)
	}
	if len(o.ServiceCIDRs) == 0 {
		return errors.New("no service network is set; set --service-cidr to what `kubectl cluster-info dump | grep service-cluster-ip-range` shows")
	}
	if o.PodCIDRs[0].Bits() > 28 {
		return fmt.Errorf("pod network %s: the external network gets the same size and needs at least 16 addresses; want /28 or larger", o.PodCIDRs[0])
	}
	for i, network := range slices.Concat(o.PodCIDRs, o.ServiceCIDRs) {
		if network.Addr().Is6() && i > 0 && i != len(o.PodCIDRs) {
			continue // dual stack: IPv6 is not supported yet, and does no harm
		}
		if err := ipam.Check(network); err != nil {
			return fmt.Errorf("network of this cluster: %w", err)
		}
	}
	if err := ipam.CheckReserved(slices.Concat(o.pools(), o.Unmapped), o.Reserved, o.OwnNetworks()); err != nil {
		return fmt.Errorf("pools: %w", err)
	}
	return nil
}

// pools returns the networks that are set apart for peers.
func (o *Options) pools() []netip.Prefix {
	if len(o.RemapPools) == 0 {
		return slices.Concat(ipam.DefaultNetworks(), o.Pools)
	}
	return slices.Concat(o.RemapPools, o.Pools)
}

// OwnNetworks returns the networks of this cluster without the external one.
func (o *Options) OwnNetworks() (all []ipam.Use) {
	for _, network := range o.PodCIDRs {
		all = append(all, ipam.Use{Name: "pod network", Network: network})
	}
	for _, network := range o.ServiceCIDRs {
		all = append(all, ipam.Use{Name: "service network", Network: network})
	}
	return all
}

// NodeReports lists what the agents report. The cache is that of the install namespace, which no peer writes into.
func (b *Reader) NodeReports(ctx context.Context) ([]netv1alpha1.NodeReport, error) {
	var reports netv1alpha1.NodeReportList
	if err := b.own.List(ctx, &reports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list reports of nodes: %w", err)
	}
	return reports.Items, nil
}
