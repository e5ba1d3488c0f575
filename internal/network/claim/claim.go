// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/endpoint"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/keyring"
)

// Claim is the validated NetworkConfig of a peer. It can still conflict with other peers.
type Claim struct {
	Pods, External netip.Prefix
	Lanes          []netv1alpha1.Lane
}

// Refusal is why a claim of a peer is not used.
type Refusal struct{ Reason, Message string }

func Refuse(reason, format string, values ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, values...)}
}

// Read validates the copy of a peer's NetworkConfig. The peer is not trusted, so nothing else of the copy is used. inside are networks in which no
// gateway of the peer can be. A gateway inside the peer's own networks is fine, because those are remapped.
func Read(theirs *netv1alpha1.NetworkConfig, localID string, inside []netip.Prefix) (Claim, *Refusal) {
	spec := &theirs.Spec
	if spec.Cluster.ClusterID != localID {
		return Claim{}, Refuse(netv1alpha1.ReasonWrongDestination, "spec.cluster names cluster %.60q, but this one is %s", spec.Cluster.ClusterID, localID)
	}
	if spec.BackendType != endpoint.Backend {
		return Claim{}, Refuse(netv1alpha1.ReasonBackendUnknown, "backendType is %.60q, this cluster supports %s", spec.BackendType, endpoint.Backend)
	}
	rows, err := spec.Rows()
	if err != nil {
		return Claim{}, Refuse(netv1alpha1.ReasonNetworkInvalid, "%v", err)
	}
	first := rows[0] // those of a further address family are not used so far
	var c Claim
	for _, network := range []struct {
		field string
		text  netv1alpha1.CIDR
		into  *netip.Prefix
		// longest mask: a smaller external network cannot hold the addresses of probes.
		longest int
	}{{"podCIDR", first.PodCIDR, &c.Pods, 30}, {"externalCIDR", first.ExternalCIDR, &c.External, 28}} {
		parsed, err := netip.ParsePrefix(string(network.text))
		if err != nil {
			return Claim{}, Refuse(netv1alpha1.ReasonNetworkInvalid, "%s %.60q is not a network in CIDR notation", network.field, network.text)
		}
		if err := ipam.Check(parsed); err != nil {
			return Claim{}, Refuse(netv1alpha1.ReasonNetworkInvalid, "%s %v", network.field, err)
		}
		if parsed.Bits() > network.longest {
			return Claim{}, Refuse(netv1alpha1.ReasonNetworkInvalid, "%s %s is too small, want /%d or larger", network.field, parsed, network.longest)
		}
		*network.into = parsed
	}
	lanes, err := readLanes(spec, inside)
	if err != nil {
		return Claim{}, Refuse(netv1alpha1.ReasonLaneInvalid, "%v", err)
	}
	c.Lanes = lanes
	return c, nil
}

// readLanes returns the lanes sorted by number, with the supported carriers.
func readLanes(spec *netv1alpha1.NetworkConfigSpec, inside []netip.Prefix) ([]netv1alpha1.Lane, error) {
	claimed := spec.Lanes
	if len(claimed) == 0 {
		first, err := documentedLane(spec)
		if err != nil {
			return nil, err
		}
		claimed = []netv1alpha1.Lane{first}
	}
	if len(claimed) > ipam.MaxLanes {
		return nil, fmt.Errorf("%d lanes, this cluster supports at most %d", len(claimed), ipam.MaxLanes)
	}
	var lanes []netv1alpha1.Lane
	for i := range claimed {
		lane := &claimed[i]
		if lane.Number < 0 || lane.Number >= ipam.MaxLanes {
			return nil, fmt.Errorf("lane %d: numbers go from 0 to %d", lane.Number, ipam.MaxLanes-1)
		}
		if err := keyring.CheckPublic(lane.PublicKey); err != nil {
			return nil, fmt.Errorf("lane %d: %w", lane.Number, err)
		}
		if slices.ContainsFunc(lanes, func(other netv1alpha1.Lane) bool {
			return other.Number == lane.Number || other.PublicKey == lane.PublicKey
		}) {
			return nil, fmt.Errorf("lane %d has the same number or key as another lane", lane.Number)
		}
		carriers, err := readCarriers(lane.Carriers, int(lane.Number), inside)
		if err != nil {
			return nil, fmt.Errorf("lane %d: %w", lane.Number, err)
		}
		lanes = append(lanes, netv1alpha1.Lane{Number: lane.Number, PublicKey: lane.PublicKey, Carriers: carriers})
	}
	slices.SortFunc(lanes, func(a, b netv1alpha1.Lane) int { return int(a.Number - b.Number) })
	return lanes, nil
}

// documentedLane returns the lane of a sender that announces only the documented fields.
func documentedLane(spec *netv1alpha1.NetworkConfigSpec) (netv1alpha1.Lane, error) {
	lane := netv1alpha1.Lane{PublicKey: spec.BackendConfig["publicKey"]}
	if lane.PublicKey == "" {
		return lane, errors.New("the configuration has neither lanes nor backend_config.publicKey, so the peer has no gateway")
	}
	if spec.EndpointIP != "" {
		port, err := strconv.ParseUint(spec.BackendConfig["port"], 10, 16)
		if err != nil {
			return lane, fmt.Errorf("backend_config.port is %.20q, want a port", spec.BackendConfig["port"])
		}
		lane.Carriers = []netv1alpha1.Carrier{{Type: netv1alpha1.CarrierUDP, Addresses: []string{spec.EndpointIP}, Port: int32(port)}}
	}
	return lane, nil
}

func readCarriers(claimed []netv1alpha1.Carrier, lane int, inside []netip.Prefix) ([]netv1alpha1.Carrier, error) {
	if len(claimed) > endpoint.MaxCarriers {
		return nil, fmt.Errorf("%d carriers, this cluster supports at most %d", len(claimed), endpoint.MaxCarriers)
	}
	var carriers []netv1alpha1.Carrier
	for i := range claimed {
		one := &claimed[i]
		switch one.Type {
		case netv1alpha1.CarrierUDP, netv1alpha1.CarrierTLS:
		case netv1alpha1.CarrierWebSocket, netv1alpha1.CarrierPlainWebSocket:
			// With another path, our gateway would send requests of the peer's choice to any web server.
			if !endpoint.CarrierPath.MatchString(one.Path) || !carrier.IsPathOf(one.Path, lane) {
				return nil, fmt.Errorf("path %.60q of a WebSocket, want one like %s", one.Path, carrier.PathOf(lane))
			}
		default:
			continue
		}
		if one.Port < 1 || one.Port > 65535 {
			return nil, fmt.Errorf("port %d, want 1 to 65535", one.Port)
		}
		if len(one.Addresses) == 0 || len(one.Addresses) > endpoint.MaxAddresses {
			return nil, fmt.Errorf("%d addresses, want 1 to %d", len(one.Addresses), endpoint.MaxAddresses)
		}
		addresses, err := readAddresses(one.Addresses, inside)
		if err != nil {
			return nil, err
		}
		way := netv1alpha1.Carrier{Type: one.Type, Addresses: addresses, Port: one.Port}
		if one.Type != netv1alpha1.CarrierUDP && one.Type != netv1alpha1.CarrierTLS {
			way.Path = one.Path
		}
		carriers = append(carriers, way)
	}
	return carriers, nil
}

// readAddresses drops addresses that belong to another host here: a node of the peer with a public address also has a private one, which may
// equal that of a node here. If no address is left, the error is that of the last dropped one.
func readAddresses(claimed []string, inside []netip.Prefix) (addresses []string, err error) {
	var elsewhere error
	for _, address := range claimed {
		if err := endpoint.CheckRemote(address, nil); err != nil {
			return nil, err
		}
		if err := endpoint.CheckRemote(address, inside); err != nil {
			elsewhere = err
			continue
		}
		addresses = append(addresses, address)
	}
	if len(addresses) == 0 {
		return nil, elsewhere
	}
	return addresses, nil
}

// ReadAnswer returns the prefixes under which the peer reaches our two networks.
func ReadAnswer(ours *netv1alpha1.NetworkConfig) (pods, external netip.Prefix, err error) {
	rows, err := ours.Status.Rows()
	if err != nil {
		return pods, external, err
	}
	if pods, err = readNAT("podCIDRNAT", ours.Spec.PodCIDR, rows[0].PodCIDRNAT); err != nil {
		return pods, external, err
	}
	if external, err = readNAT("externalCIDRNAT", ours.Spec.ExternalCIDR, rows[0].ExternalCIDRNAT); err != nil {
		return pods, external, err
	}
	if pods.Overlaps(external) {
		return pods, external, fmt.Errorf("podCIDRNAT %s and externalCIDRNAT %s overlap", pods, external)
	}
	return pods, external, nil
}

func readNAT(field string, own netv1alpha1.CIDR, claimed string) (netip.Prefix, error) {
	from, err := netip.ParsePrefix(string(own))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("our own network %.60q is not a network in CIDR notation", own)
	}
	if claimed == netv1alpha1.NotRemapped {
		return from, nil
	}
	to, err := netip.ParsePrefix(claimed)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s %.60q is neither a network nor %s", field, claimed, netv1alpha1.NotRemapped)
	}
	if err := ipam.Check(to); err != nil {
		return netip.Prefix{}, fmt.Errorf("%s %w", field, err)
	}
	if to.Bits() != from.Bits() {
		return netip.Prefix{}, fmt.Errorf("%s %s is not as large as %s", field, to, from)
	}
	return to, nil
}
