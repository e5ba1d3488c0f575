// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/plan/carriers"
)

// Objects are the inputs of a snapshot, as listed.
type Objects struct {
	Tunnels  []netv1alpha1.TunnelEndpoint
	Nodes    []corev1.Node
	Gateways []corev1.Pod
	Mappings []netv1alpha1.IPMapping
	// Pods are those of all nodes, if some nodes have no pod networks of their own.
	Pods []corev1.Pod
	// PodsUnknown: Pods are needed, but not listed yet.
	PodsUnknown bool
	// Restricted: peers exchange packets only with Pods that belong to the peering: they run for the peer, or are in a namespace that one of our
	// NamespaceMaps offloads to it.
	Restricted    bool
	NamespaceMaps []vkv1alpha1.NamespaceMap
	// Namespace is the install namespace.
	Namespace string
	// Keys is the Secret with the keys of the gateways; nil if it does not exist or is not watched.
	Keys *corev1.Secret
}

// View is a snapshot, and what a gateway needs to know of its peers beyond it.
type View struct {
	Snapshot plan.Snapshot
	// Peers by their cluster IDs.
	Peers map[string]PeerView
	// old: the local networks of the snapshot are from before a change, because no peer has answered it.
	old bool
}

// PeerView is the input for the plan of one peer.
type PeerView struct {
	// Generation of the tunnel endpoint.
	Generation int64
	// Endpoints of each lane, most preferred first.
	Endpoints map[int][]Endpoint
	// Previous are the replaced keys of its gateways, by lane.
	Previous map[int]PreviousKey
}

// PreviousKey is a public key that was in use until a time.
type PreviousKey struct {
	PublicKey string
	Until     time.Time
}

// Endpoint is where a gateway may be reached.
type Endpoint = carriers.Endpoint

var kinds = []string{netv1alpha1.CarrierUDP, netv1alpha1.CarrierTLS, netv1alpha1.CarrierWebSocket, netv1alpha1.CarrierPlainWebSocket}

// NewView converts listed objects to a snapshot. It omits objects that it cannot parse and names them in the error; the plan finds objects
// that contradict each other.
func NewView(objects Objects) (View, error) {
	view := View{Peers: map[string]PeerView{}}
	var wrong []error
	tunnels := slices.Clone(objects.Tunnels)
	slices.SortFunc(tunnels, func(a, b netv1alpha1.TunnelEndpoint) int {
		return cmp.Or(cmp.Compare(a.Spec.ClusterIdentity.ClusterID, b.Spec.ClusterIdentity.ClusterID),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range tunnels {
		if err := view.addPeer(&tunnels[i]); err != nil {
			wrong = append(wrong, fmt.Errorf("tunnelendpoint %s/%s: %w", tunnels[i].Namespace, tunnels[i].Name, err))
		}
	}
	view.addNodes(objects)
	view.Snapshot.PodsUnknown = objects.PodsUnknown
	if objects.Restricted {
		view.restrict(objects)
	}
	view.addGateways(objects.Gateways)
	for i := range objects.Mappings {
		if err := view.addMapping(&objects.Mappings[i]); err != nil {
			wrong = append(wrong, fmt.Errorf("ipmapping %s: %w", objects.Mappings[i].Name, err))
		}
	}
	slices.SortFunc(view.Snapshot.Mappings, func(a, b plan.Mapping) int { return a.External.Compare(b.External) })
	return view, errors.Join(wrong...)
}

// networks are a network of a tunnel endpoint, and the prefix under which the other side reaches it.
type networks struct {
	own, seen netip.Prefix
}

func readNetworks(field string, own netv1alpha1.CIDR, seen string) (networks, error) {
	var n networks
	var err error
	if n.own, err = readNetwork(string(own)); err != nil {
		return n, fmt.Errorf("spec.%s: %w", field, err)
	}
	n.seen = n.own
	if seen != "" && seen != netv1alpha1.NotRemapped {
		if n.seen, err = readNetwork(seen); err != nil {
			return n, fmt.Errorf("spec.%s, remapped: %w", field, err)
		}
	}
	return n, nil
}

func readNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil || !network.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("%.70q is not an IPv4 network in CIDR notation", text)
	}
	return network, nil
}

func (v *View) addPeer(tunnel *netv1alpha1.TunnelEndpoint) error {
	spec := &tunnel.Spec
	id := spec.ClusterIdentity.ClusterID
	switch label := tunnel.Labels[labels.TunnelCluster]; {
	case id == "":
		return errors.New("spec.clusterIdentity.clusterID is empty")
	case label != "" && label != id:
		return fmt.Errorf("label %s is %.70q, but spec.clusterIdentity.clusterID is %.70q", labels.TunnelCluster, label, id)
	}
	if _, twice := v.Peers[id]; twice {
		return fmt.Errorf("ignored, because an older one for cluster %s exists", id)
	}
	row := spec.Rows()[0] // of one address family so far
	localPods, err1 := readNetworks("localPodCIDR", row.LocalPodCIDR, row.LocalNATPodCIDR)
	localExternal, err2 := readNetworks("localExternalCIDR", row.LocalExternalCIDR, row.LocalNATExternalCIDR)
	remotePods, err3 := readNetworks("remotePodCIDR", row.RemotePodCIDR, row.RemoteNATPodCIDR)
	remoteExternal, err4 := readNetworks("remoteExternalCIDR", row.RemoteExternalCIDR, row.RemoteNATExternalCIDR)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if old := isOld(tunnel); len(v.Snapshot.Peers) == 0 || v.old && !old {
		// All tunnel endpoints have the same local networks, except after these have changed. The plan refuses those that differ.
		v.Snapshot.Local.PodCIDRs, v.Snapshot.Local.External, v.old = []netip.Prefix{localPods.own}, localExternal.own, old
	}
	peer := plan.Peer{
		ClusterID: id, Name: spec.ClusterIdentity.ClusterName,
		Pods:       plan.Swap{From: localPods.own, To: localPods.seen},
		External:   plan.Swap{From: localExternal.own, To: localExternal.seen},
		RemotePods: remotePods.seen, RemoteExternal: remoteExternal.seen,
		MTU: int(max(0, tunnel.Status.Connection.MTU)), MappingsOnly: tunnel.Labels[labels.Invitation] != "",
		Shown: tunnel.Labels[labels.TunnelShown] == "true",
	}
	lanes, wrong := readLanes(spec)
	facts := PeerView{Generation: tunnel.Generation, Endpoints: map[int][]Endpoint{}}
	for _, lane := range lanes {
		number := int(lane.Number)
		peer.Lanes = append(peer.Lanes, plan.PeerLane{Number: number, Keys: []string{lane.PublicKey}})
		if previous, until, ok := spec.PreviousKey(lane.Number); ok && isKey(previous) {
			if facts.Previous == nil {
				facts.Previous = map[int]PreviousKey{}
			}
			facts.Previous[number] = PreviousKey{previous, until}
		}
		for _, carrier := range lane.Carriers {
			if !slices.Contains(kinds, carrier.Type) || carrier.Port < 1 || carrier.Port > 1<<16-1 {
				continue
			}
			kind, plain := carrier.Type, carrier.Type == netv1alpha1.CarrierPlainWebSocket
			if plain {
				kind = netv1alpha1.CarrierWebSocket
			}
			for _, host := range carrier.Addresses {
				facts.Endpoints[number] = append(facts.Endpoints[number], Endpoint{Kind: kind, Host: host, Port: uint16(carrier.Port), Path: carrier.Path, Plain: plain})
			}
		}
	}
	v.Snapshot.Peers, v.Peers[id] = append(v.Snapshot.Peers, peer), facts
	return wrong
}

// isOld reports whether a tunnel endpoint has networks of this cluster from before a change, which the peer has not answered.
func isOld(tunnel *netv1alpha1.TunnelEndpoint) bool {
	ready := meta.FindStatusCondition(tunnel.Status.Conditions, netv1alpha1.ConditionReady)
	// A condition of an earlier generation is that of an earlier agreement: the peer has answered since.
	return ready != nil && ready.Reason == netv1alpha1.ReasonAnswerPending && ready.ObservedGeneration == tunnel.Generation
}

// readLanes returns the usable lanes, sorted by number. A peer without lanes has one, in the documented fields.
func readLanes(spec *netv1alpha1.TunnelEndpointSpec) (lanes []netv1alpha1.Lane, wrong error) {
	all := spec.Lanes
	if len(all) == 0 {
		lane := netv1alpha1.Lane{PublicKey: spec.BackendConfig["publicKey"]}
		if port, err := strconv.ParseUint(spec.BackendConfig["port"], 10, 16); err == nil && port > 0 && spec.EndpointIP != "" {
			lane.Carriers = []netv1alpha1.Carrier{{Type: netv1alpha1.CarrierUDP, Addresses: []string{spec.EndpointIP}, Port: int32(port)}}
		}
		all = []netv1alpha1.Lane{lane}
	}
	for _, lane := range all {
		switch {
		case lane.Number < 0 || lane.Number >= ipam.MaxLanes:
			wrong = errors.Join(wrong, fmt.Errorf("spec.lanes: number %d is not between 0 and %d", lane.Number, ipam.MaxLanes-1))
		case slices.ContainsFunc(lanes, func(other netv1alpha1.Lane) bool { return other.Number == lane.Number }):
			wrong = errors.Join(wrong, fmt.Errorf("spec.lanes: number %d occurs twice", lane.Number))
		case !isKey(lane.PublicKey):
			wrong = errors.Join(wrong, fmt.Errorf("spec.lanes[%d].publicKey: %.50q is not 32 bytes in base64", lane.Number, lane.PublicKey))
		default:
			lanes = append(lanes, lane)
		}
	}
	slices.SortFunc(lanes, func(a, b netv1alpha1.Lane) int { return cmp.Compare(a.Number, b.Number) })
	return lanes, wrong
}

// isKey reports whether a text is a WireGuard key: 32 bytes in base64.
func isKey(text string) bool {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	return err == nil && len(raw) == 32
}

// addNodes adds the real nodes that have an address; a joining node gets its address later.
func (v *View) addNodes(objects Objects) {
	pods := map[string][]netip.Addr{}
	for i := range objects.Pods {
		pod := &objects.Pods[i]
		if address, ok := podAddress(pod); ok {
			pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], address)
		}
	}
	for i := range objects.Nodes {
		node := &objects.Nodes[i]
		address, ok := internalAddress(node)
		if !ok || node.Labels[labels.Type] == labels.TypeVirtualNode {
			continue
		}
		known := plan.Node{Name: node.Name, Address: address}
		for _, text := range podNetworks(node) {
			if network, err := netip.ParsePrefix(text); err == nil && network.Addr().Is4() {
				known.PodCIDRs = append(known.PodCIDRs, network)
			}
		}
		slices.SortFunc(known.PodCIDRs, netip.Prefix.Compare)
		if len(known.PodCIDRs) == 0 {
			known.Pods = pods[node.Name]
			slices.SortFunc(known.Pods, netip.Addr.Compare)
		}
		v.Snapshot.Nodes = append(v.Snapshot.Nodes, known)
	}
	slices.SortFunc(v.Snapshot.Nodes, func(a, b plan.Node) int { return cmp.Compare(a.Name, b.Name) })
}

// restrict adds to each peer the pods that belong to the peering.
func (v *View) restrict(objects Objects) {
	v.Snapshot.Restricted = true
	offloaded := map[string]map[string]bool{} // peers by namespace
	for i := range objects.NamespaceMaps {
		one := &objects.NamespaceMaps[i]
		for namespace := range one.Spec.DesiredMapping {
			if offloaded[namespace] == nil {
				offloaded[namespace] = map[string]bool{}
			}
			offloaded[namespace][one.Labels[labels.RemoteID]] = true
		}
	}
	tenants := map[string]string{} // the tenant namespaces of in-band peers
	for i := range objects.Tunnels {
		if tunnel := &objects.Tunnels[i]; tunnel.Labels[labels.TunnelInBand] == "true" {
			tenants[tunnel.Spec.ClusterIdentity.ClusterID] = tunnel.Namespace
		}
	}
	for i := range objects.Pods {
		pod := &objects.Pods[i]
		address, ok := podAddress(pod)
		if !ok {
			continue
		}
		manager := pod.Namespace == objects.Namespace && pod.Labels[labels.AppComponent] == labels.ComponentManager
		for at := range v.Snapshot.Peers {
			peer := &v.Snapshot.Peers[at]
			tenant, inBand := tenants[peer.ClusterID]
			belongs := pod.Labels[labels.Origin] == peer.ClusterID || offloaded[pod.Namespace][peer.ClusterID] ||
				inBand && (manager || pod.Namespace == tenant) // only our virtual kubelet runs there
			if belongs && peer.Pods.From.Contains(address) { // pods on virtual nodes have addresses of the peer
				peer.Reachable = append(peer.Reachable, address)
			}
		}
	}
	for at := range v.Snapshot.Peers {
		slices.SortFunc(v.Snapshot.Peers[at].Reachable, netip.Addr.Compare)
	}
}

func podNetworks(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

// internalAddress returns the first internal IPv4 address.
func internalAddress(node *corev1.Node) (netip.Addr, bool) {
	for _, address := range node.Status.Addresses {
		if parsed, err := netip.ParseAddr(address.Address); err == nil && parsed.Is4() && address.Type == corev1.NodeInternalIP {
			return parsed, true
		}
	}
	return netip.Addr{}, false
}

// podAddress returns the address that a pod has of its own. That of a pod that has ended may belong to another pod.
func podAddress(pod *corev1.Pod) (netip.Addr, bool) {
	address, err := netip.ParseAddr(pod.Status.PodIP)
	return address, err == nil && !ended(pod)
}

func ended(pod *corev1.Pod) bool {
	return podphase.Final(pod.Status.Phase) || pod.Spec.HostNetwork
}

// addGateways adds one pod for each lane: during a replacement there are two.
func (v *View) addGateways(pods []corev1.Pod) {
	best := map[int]*corev1.Pod{}
	for i := range pods {
		pod := &pods[i]
		lane, err := strconv.Atoi(pod.Labels[labels.GatewayLane])
		if err != nil || lane < 0 || lane >= ipam.MaxLanes || pod.DeletionTimestamp != nil || ended(pod) {
			continue
		}
		if _, err := netip.ParseAddr(pod.Status.PodIP); err == nil && (best[lane] == nil || better(pod, best[lane])) {
			best[lane] = pod
		}
	}
	for lane, pod := range best {
		v.Snapshot.Gateways = append(v.Snapshot.Gateways, plan.Gateway{Lane: lane, Address: netip.MustParseAddr(pod.Status.PodIP), Node: pod.Spec.NodeName})
	}
	slices.SortFunc(v.Snapshot.Gateways, func(a, b plan.Gateway) int { return cmp.Compare(a.Lane, b.Lane) })
}

// better prefers a running pod, then the newer one.
func better(a, b *corev1.Pod) bool {
	running := func(pod *corev1.Pod) int {
		if pod.Status.Phase == corev1.PodRunning {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(running(a), running(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) > 0
}

func (v *View) addMapping(mapping *netv1alpha1.IPMapping) error {
	if mapping.Status.ExternalAddress == "" || mapping.DeletionTimestamp != nil {
		return nil // not assigned yet, or about to be deleted
	}
	external, err := netip.ParseAddr(mapping.Status.ExternalAddress)
	if err != nil {
		return fmt.Errorf("status.externalAddress: %.70q is not an IP address", mapping.Status.ExternalAddress)
	}
	target, err := netip.ParseAddr(mapping.Spec.Address)
	if err != nil {
		return fmt.Errorf("spec.address: %.70q is not an IP address", mapping.Spec.Address)
	}
	ids := slices.Clone(mapping.Spec.ClusterIDs)
	slices.Sort(ids)
	var ports []plan.MappingPort // the plan refuses a mapping with an unknown protocol: without its ports, it would be open
	for _, port := range mapping.Spec.Ports {
		ports = append(ports, plan.MappingPort{Protocol: strings.ToLower(string(port.Protocol)), Port: uint16(port.Port)})
	}
	slices.SortFunc(ports, func(a, b plan.MappingPort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	v.Snapshot.Mappings = append(v.Snapshot.Mappings, plan.Mapping{External: external, Target: target, ClusterIDs: ids, Ports: slices.Compact(ports)})
	return nil
}
