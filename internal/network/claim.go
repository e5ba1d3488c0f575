// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
)

// claim is what a peer says of its network, as far as it can be believed without knowing other peers.
type claim struct {
	pods, external netip.Prefix
	lanes          []netv1alpha1.Lane
}

// refusal is why something of a peer is not used.
type refusal struct{ reason, message string }

func refuse(reason, format string, values ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, values...)}
}

// readClaim checks the copy of a peer's NetworkConfig. The peer may be anybody: it gets nothing but what is checked here. inside are networks with no gateway of it;
// that one is in a network that it claims does not matter: this network is seen as another one.
func readClaim(theirs *netv1alpha1.NetworkConfig, localID string, inside []netip.Prefix) (claim, *refusal) {
	spec := &theirs.Spec
	if spec.Cluster.ClusterID != localID {
		return claim{}, refuse(netv1alpha1.ReasonWrongDestination, "it is meant for cluster %.60q, this one is %s", spec.Cluster.ClusterID, localID)
	}
	if spec.BackendType != backend {
		return claim{}, refuse(netv1alpha1.ReasonBackendUnknown, "backendType is %.60q, this cluster knows %s", spec.BackendType, backend)
	}
	var c claim
	for _, network := range []struct {
		field string
		text  netv1alpha1.CIDR
		into  *netip.Prefix
		// longest mask: a smaller external network has no room for the addresses of probes.
		longest int
	}{{"podCIDR", spec.PodCIDR, &c.pods, 30}, {"externalCIDR", spec.ExternalCIDR, &c.external, 28}} {
		parsed, err := netip.ParsePrefix(string(network.text))
		if err != nil {
			return claim{}, refuse(netv1alpha1.ReasonNetworkInvalid, "%s %.60q is no network in CIDR notation", network.field, network.text)
		}
		if err := ipam.Check(parsed); err != nil {
			return claim{}, refuse(netv1alpha1.ReasonNetworkInvalid, "%s %v", network.field, err)
		}
		if parsed.Bits() > network.longest {
			return claim{}, refuse(netv1alpha1.ReasonNetworkInvalid, "%s %s is too small, want /%d or larger", network.field, parsed, network.longest)
		}
		*network.into = parsed
	}
	lanes, err := readLanes(spec, inside)
	if err != nil {
		return claim{}, refuse(netv1alpha1.ReasonLaneInvalid, "%v", err)
	}
	c.lanes = lanes
	return c, nil
}

// readLanes returns the lanes in their order, with the carriers that are known here only.
func readLanes(spec *netv1alpha1.NetworkConfigSpec, inside []netip.Prefix) ([]netv1alpha1.Lane, error) {
	said := spec.Lanes
	if len(said) == 0 {
		first, err := documentedLane(spec)
		if err != nil {
			return nil, err
		}
		said = []netv1alpha1.Lane{first}
	}
	if len(said) > ipam.MaxLanes {
		return nil, fmt.Errorf("%d lanes, at most %d are understood", len(said), ipam.MaxLanes)
	}
	var lanes []netv1alpha1.Lane
	for i := range said {
		lane := &said[i]
		if lane.Number < 0 || lane.Number >= ipam.MaxLanes {
			return nil, fmt.Errorf("lane %d: numbers go from 0 to %d", lane.Number, ipam.MaxLanes-1)
		}
		if err := checkKey(lane.PublicKey); err != nil {
			return nil, fmt.Errorf("lane %d: %w", lane.Number, err)
		}
		if slices.ContainsFunc(lanes, func(other netv1alpha1.Lane) bool {
			return other.Number == lane.Number || other.PublicKey == lane.PublicKey
		}) {
			return nil, fmt.Errorf("lane %d has the number or the key of another lane", lane.Number)
		}
		carriers, err := readCarriers(lane.Carriers, inside)
		if err != nil {
			return nil, fmt.Errorf("lane %d: %w", lane.Number, err)
		}
		lanes = append(lanes, netv1alpha1.Lane{Number: lane.Number, PublicKey: lane.PublicKey, Carriers: carriers})
	}
	slices.SortFunc(lanes, func(a, b netv1alpha1.Lane) int { return int(a.Number - b.Number) })
	return lanes, nil
}

// documentedLane is what a sender that knows of no lanes says.
func documentedLane(spec *netv1alpha1.NetworkConfigSpec) (netv1alpha1.Lane, error) {
	lane := netv1alpha1.Lane{PublicKey: spec.BackendConfig["publicKey"]}
	if lane.PublicKey == "" {
		return lane, errors.New("it names no lane, that is no gateway of the peer")
	}
	if spec.EndpointIP != "" {
		port, err := strconv.ParseUint(spec.BackendConfig["port"], 10, 16)
		if err != nil {
			return lane, fmt.Errorf("backend_config.port is %.20q, want a port", spec.BackendConfig["port"])
		}
		lane.Carriers = []netv1alpha1.Carrier{{Type: carrierUDP, Addresses: []string{spec.EndpointIP}, Port: int32(port)}}
	}
	return lane, nil
}

func checkKey(text string) error {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != keySize || strings.ContainsAny(text, "\r\n") {
		return fmt.Errorf("public key %.60q is not 32 bytes in base64", text)
	}
	if [keySize]byte(key) == [keySize]byte{} {
		return errors.New("the public key is all zero")
	}
	return nil
}

func readCarriers(said []netv1alpha1.Carrier, inside []netip.Prefix) ([]netv1alpha1.Carrier, error) {
	if len(said) > maxCarriers {
		return nil, fmt.Errorf("%d carriers, at most %d are understood", len(said), maxCarriers)
	}
	var carriers []netv1alpha1.Carrier
	for i := range said {
		one := &said[i]
		if one.Type != carrierUDP {
			continue
		}
		if one.Port < 1 || one.Port > 65535 {
			return nil, fmt.Errorf("port %d, want 1 to 65535", one.Port)
		}
		if len(one.Addresses) == 0 || len(one.Addresses) > maxAddresses {
			return nil, fmt.Errorf("%d addresses, want 1 to %d", len(one.Addresses), maxAddresses)
		}
		addresses, err := readAddresses(one.Addresses, inside)
		if err != nil {
			return nil, err
		}
		carriers = append(carriers, netv1alpha1.Carrier{Type: carrierUDP, Addresses: addresses, Port: one.Port})
	}
	return carriers, nil
}

// readAddresses leaves out those that mean something else here: nodes of the peer that have a public address have a private one, too, which
// may well be that of a node here. If nothing is left, that is why.
func readAddresses(said []string, inside []netip.Prefix) (addresses []string, err error) {
	var elsewhere error
	for _, address := range said {
		if err := checkRemote(address, nil); err != nil {
			return nil, err
		}
		if err := checkRemote(address, inside); err != nil {
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

// readAnswer says as what the peer sees our two networks.
func readAnswer(ours *netv1alpha1.NetworkConfig) (pods, external netip.Prefix, err error) {
	if pods, err = readNAT("podCIDRNAT", ours.Spec.PodCIDR, ours.Status.PodCIDRNAT); err != nil {
		return pods, external, err
	}
	if external, err = readNAT("externalCIDRNAT", ours.Spec.ExternalCIDR, ours.Status.ExternalCIDRNAT); err != nil {
		return pods, external, err
	}
	if pods.Overlaps(external) {
		return pods, external, fmt.Errorf("podCIDRNAT %s and externalCIDRNAT %s overlap", pods, external)
	}
	return pods, external, nil
}

func readNAT(field string, own netv1alpha1.CIDR, said string) (netip.Prefix, error) {
	from, err := netip.ParsePrefix(string(own))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("our own network %.60q is none", own)
	}
	if said == netv1alpha1.NotRemapped {
		return from, nil
	}
	to, err := netip.ParsePrefix(said)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s %.60q is neither a network nor %s", field, said, netv1alpha1.NotRemapped)
	}
	if err := ipam.Check(to); err != nil {
		return netip.Prefix{}, fmt.Errorf("%s %w", field, err)
	}
	if to.Bits() != from.Bits() {
		return netip.Prefix{}, fmt.Errorf("%s %s is not as large as %s", field, to, from)
	}
	return to, nil
}

// remap is the documented form of "seen as": None if it is as it is.
func remap(from, to netip.Prefix) string {
	if from == to {
		return netv1alpha1.NotRemapped
	}
	return to.String()
}
