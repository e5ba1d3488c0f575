// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/accept"
	"liqo.io/liqo/internal/peering/auth/published"
)

const (
	// gatewayName is the workload of the first lane; further gateways have the number of their lane as suffix.
	gatewayName = "liqo-gateway"
	// internalNetwork is the status of a network that is Liqo's own; the other status is External.
	internalNetwork = "Internal"
)

// Network is the state of the network between clusters. If the network is not Liqo's own, only Status is set, to External.
type Network struct {
	Status          string   `json:"status"`
	PodCIDR         string   `json:"podCIDR,omitempty"`
	ServiceCIDR     string   `json:"serviceCIDR,omitempty"`
	ExternalCIDR    string   `json:"externalCIDR,omitempty"`
	ReservedSubnets []string `json:"reservedSubnets,omitempty"`
}

// GatewayEndpoint is the address at which peers reach the gateway of one lane.
type GatewayEndpoint struct {
	Lane int    `json:"lane"`
	URL  string `json:"url,omitempty"`
	// Error is the reason for a missing URL. It is not a failure: one reachable cluster of two is enough.
	Error string `json:"error,omitempty"`
}

// lanes are the names of the gateways in the order of their numbers. The first one is always expected.
func lanes(deployments []appsv1.Deployment) (names []string) {
	byLane := map[int]string{0: gatewayName}
	for i := range deployments {
		if lane, ok := laneOf(deployments[i].Labels); ok && strings.HasPrefix(deployments[i].Name, gatewayName) {
			byLane[lane] = deployments[i].Name
		}
	}
	for _, lane := range slices.Sorted(maps.Keys(byLane)) {
		names = append(names, byLane[lane])
	}
	return names
}

func laneOf(objectLabels map[string]string) (int, bool) {
	lane, err := strconv.Atoi(objectLabels[labels.GatewayLane])
	return lane, err == nil && lane >= 0
}

// newNetworkStatus is pure. The user does not choose the external network, so it comes from the NetworkConfigs of this cluster.
func newNetworkStatus(recorded map[string]string, configs []netv1alpha1.NetworkConfig) *Network {
	s := &Network{Status: internalNetwork, PodCIDR: recorded["POD_CIDR"], ServiceCIDR: recorded["SERVICE_CIDR"], ExternalCIDR: recorded["EXTERNAL_CIDR"]}
	for one := range strings.SplitSeq(recorded["RESERVED_SUBNETS"], ",") {
		if one != "" {
			s.ReservedSubnets = append(s.ReservedSubnets, one)
		}
	}
	for i := range configs {
		if configs[i].Labels[labels.Replicated] != "true" {
			s.ExternalCIDR = cmp.Or(s.ExternalCIDR, string(configs[i].Spec.ExternalCIDR))
		}
	}
	return s
}

// newGatewayEndpoints is pure: it returns the endpoints of the gateways' Services in the order of their lanes.
func newGatewayEndpoints(services []corev1.Service, nodes []corev1.Node) (all []GatewayEndpoint) {
	for i := range services {
		service := &services[i]
		lane, ok := laneOf(service.Labels)
		if service.Labels[labels.Gateway] != "true" || !ok {
			continue
		}
		one := GatewayEndpoint{Lane: lane}
		host, port, err := published.Facts{Service: *service, Nodes: nodes}.Endpoint()
		switch {
		case err == nil && service.Spec.Type == corev1.ServiceTypeNodePort && service.Annotations[labels.OverrideAddress] == "":
			host = cmp.Or(service.Annotations[labels.GatewayNodeIP], host)
			fallthrough
		case err == nil:
			one.URL = map[bool]string{true: "tls://", false: "udp://"}[service.Spec.Ports[0].Protocol == corev1.ProtocolTCP] +
				net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(int(port)))
		case service.Spec.Type == corev1.ServiceTypeClusterIP:
			one.Error = fmt.Sprintf("Service %s has type ClusterIP, so the peers must be reachable instead", service.Name)
		default:
			one.Error = err.Error()
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b GatewayEndpoint) int { return cmp.Compare(a.Lane, b.Lane) })
	return all
}

func newDaemonSet(d *appsv1.DaemonSet) Component {
	component := Component{
		Kind: "DaemonSet", Name: d.Name, Found: true, Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady, Available: d.Status.NumberAvailable,
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		component.Images = append(component.Images, container.Image)
	}
	return component
}

// PeerNetwork holds the networks agreed with one peer, and the state of the tunnel to it.
type PeerNetwork struct {
	// Local are the networks of this cluster, with the prefixes under which the peer reaches them; Remote are the peer's, with
	// the prefixes under which this cluster reaches them. Without a NetworkConfig they are unknown.
	Local  *SeenNetworks `json:"local,omitempty"`
	Remote *SeenNetworks `json:"remote,omitempty"`
	// Use states under which networks the peer is reached, and by whose word one is used as it is. Refused is why what the peer announces is not used.
	Use     string `json:"use,omitempty"`
	Refused string `json:"refused,omitempty"`
	// Accept is the command that agrees to what is refused, if an administrator may. Conflict is what nodes here reach in networks of the peer.
	Accept   string `json:"accept,omitempty"`
	Conflict string `json:"conflict,omitempty"`
	// Shown states whether the addresses that the peer's API shows for pods here lead to them here.
	Shown string `json:"shown,omitempty"`
	// Connection is that of the TunnelEndpoint; nil without one.
	Connection *PeerConnection `json:"connection,omitempty"`
}

// SeenNetworks are networks with the prefixes under which the other cluster reaches them: None if they are not remapped, empty
// if that is unknown.
type SeenNetworks struct {
	PodCIDR              string `json:"podCIDR"`
	ExternalCIDR         string `json:"externalCIDR"`
	RemappedPodCIDR      string `json:"remappedPodCIDR,omitempty"`
	RemappedExternalCIDR string `json:"remappedExternalCIDR,omitempty"`
}

type PeerConnection struct {
	// LocalGateway is the address that this cluster publishes to the peer; RemoteGateway is the one that the peer published.
	LocalGateway  string `json:"localGateway,omitempty"`
	RemoteGateway string `json:"remoteGateway,omitempty"`
	Status        string `json:"status,omitempty"`
	Message       string `json:"message,omitempty"`
	Latency       string `json:"latency,omitempty"`
	MTU           int32  `json:"mtu,omitempty"`
	// Carrier is what carries the packets: UDP, TLS or WebSocket. CarrierReason is why it is not a better one.
	Carrier       string `json:"carrier,omitempty"`
	CarrierReason string `json:"carrierReason,omitempty"`
	// Lanes of the peer.
	Lanes []PeerLane `json:"lanes,omitempty"`
}

type PeerLane struct {
	Number    int32    `json:"number"`
	Endpoints []string `json:"endpoints,omitempty"`
}

// newPeerNetwork is pure. The TunnelEndpoint holds what both sides agreed on; until it exists, each side's NetworkConfig
// holds one half.
func newPeerNetwork(name, clusterID string, configs []netv1alpha1.NetworkConfig, tunnels []netv1alpha1.TunnelEndpoint) *PeerNetwork {
	if clusterID == "" {
		return nil
	}
	n := &PeerNetwork{}
	localGateway := ""
	var inUse *netv1alpha1.TunnelEndpoint
	if i := slices.IndexFunc(tunnels, func(one netv1alpha1.TunnelEndpoint) bool { return one.Spec.ClusterIdentity.ClusterID == clusterID }); i >= 0 {
		inUse = &tunnels[i]
	}
	for i := range configs {
		config := &configs[i]
		seen := &SeenNetworks{PodCIDR: string(config.Spec.PodCIDR), ExternalCIDR: string(config.Spec.ExternalCIDR)}
		if config.Status.Processed {
			seen.RemappedPodCIDR = cmp.Or(config.Status.PodCIDRNAT, netv1alpha1.NotRemapped)
			seen.RemappedExternalCIDR = cmp.Or(config.Status.ExternalCIDRNAT, netv1alpha1.NotRemapped)
		}
		switch {
		case config.Labels[labels.Replicated] == "true" && config.Labels[labels.OriginID] == clusterID:
			n.Remote = seen
			if ready := meta.FindStatusCondition(config.Status.Conditions, netv1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse {
				n.Refused = fmt.Sprintf("%s: the peer announces %s and %s; %s", ready.Reason, config.Spec.PodCIDR, config.Spec.ExternalCIDR, ready.Message)
				n.Accept = accept.Command(name, config, inUse)
			}
		case config.Labels[labels.Replicated] != "true" && config.Spec.Cluster.ClusterID == clusterID:
			n.Local = seen
			localGateway = gatewayAddress(config.Spec.EndpointIP, config.Spec.BackendConfig)
		}
	}
	if inUse != nil {
		spec := &inUse.Spec
		n.Local = &SeenNetworks{string(spec.LocalPodCIDR), string(spec.LocalExternalCIDR), notRemapped(spec.LocalNATPodCIDR), notRemapped(spec.LocalNATExternalCIDR)}
		n.Remote = &SeenNetworks{
			string(spec.RemotePodCIDR), string(spec.RemoteExternalCIDR), notRemapped(spec.RemoteNATPodCIDR),
			notRemapped(spec.RemoteNATExternalCIDR),
		}
		if ready := meta.FindStatusCondition(inUse.Status.Conditions, netv1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionTrue {
			n.Use = ready.Message
		}
		if free := meta.FindStatusCondition(inUse.Status.Conditions, netv1alpha1.ConditionNetworksFree); free != nil && free.Status == metav1.ConditionFalse {
			n.Conflict = free.Message
		}
		n.Shown = shownHere(inUse)
		n.Connection = newPeerConnection(inUse)
		n.Connection.LocalGateway = localGateway
	}
	return n
}

// shownHere is empty if the peer does not remap our pods: then it shows the addresses that they have.
func shownHere(tunnel *netv1alpha1.TunnelEndpoint) string {
	network := notRemapped(tunnel.Spec.LocalNATPodCIDR)
	switch {
	case network == netv1alpha1.NotRemapped:
		return ""
	case tunnel.Labels[labels.TunnelShown] == "true":
		return network + " leads to the pods here, for pods of both clusters"
	default:
		return network + " leads to the pods here for pods of the peer only: in this cluster it is in other use, or not set apart; a program here that reads " +
			"such an address from the peer's API " +
			"reaches another pod, or none. If the peering was agreed by an earlier version, unpeer and peer again"
	}
}

func notRemapped(network string) string { return cmp.Or(network, netv1alpha1.NotRemapped) }

// gatewayAddress is the published address of the first lane; empty for a gateway that dials the peer.
func gatewayAddress(host string, config map[string]string) string {
	if host == "" || config["port"] == "" {
		return host
	}
	return net.JoinHostPort(host, config["port"])
}

func newPeerConnection(tunnel *netv1alpha1.TunnelEndpoint) *PeerConnection {
	connection := tunnel.Status.Connection
	c := &PeerConnection{
		RemoteGateway: gatewayAddress(tunnel.Spec.EndpointIP, tunnel.Spec.BackendConfig),
		Status:        string(connection.Status), Message: connection.StatusMessage, Latency: connection.Latency.Value, MTU: connection.MTU,
		Carrier: connection.PeerConfiguration[netv1alpha1.PeerCarrier], CarrierReason: connection.PeerConfiguration[netv1alpha1.PeerCarrierReason],
	}
	for _, lane := range tunnel.Spec.Lanes {
		one := PeerLane{Number: lane.Number}
		for _, carrier := range lane.Carriers {
			for _, address := range carrier.Addresses {
				one.Endpoints = append(one.Endpoints, net.JoinHostPort(address, strconv.Itoa(int(carrier.Port))))
			}
		}
		c.Lanes = append(c.Lanes, one)
	}
	return c
}

// externally reports whether the network to a peer is not Liqo's.
func externally(network Aspect) bool {
	return network.Status == string(discoveryv1alpha1.StatusExternal)
}
