// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
)

// This is the one place that reads and writes the networks of NetworkConfigs and TunnelEndpoints, in rows for each address family and in the fields of one
// family that came before them.

// NetworksEntry is the entry of backend_config with the digest of rows that state more than the fields.
const NetworksEntry = "networks"

// Why rows of networks are not believed.
var (
	errNetworksDisagree = errors.New(
		"the first row of networks is not what podCIDR and externalCIDR are, so readers of an earlier version would use other networks",
	)
	errNetworksUnsigned = errors.New("the rows of networks are not those of the digest in backend_config, so they are not signed")
)

// Rows returns the networks of the sender, one row for each address family. It is an error if the rows and the fields disagree, or if the signatures do not
// cover a row: a sender could state different networks to two readers, and who stores the object could add a row.
func (s *NetworkConfigSpec) Rows() ([]Networks, error) {
	fields := Networks{s.PodCIDR, s.ExternalCIDR}
	rows := s.Networks
	switch {
	case len(rows) == 0:
		return []Networks{fields}, nil
	case fields != Networks{} && rows[0] != fields:
		return nil, errNetworksDisagree
	case !s.Covered():
		return nil, errNetworksUnsigned
	}
	families := map[bool]bool{}
	for i := range rows {
		is6, err := family(rows[i].PodCIDR, rows[i].ExternalCIDR)
		if err != nil {
			return nil, fmt.Errorf("row %d of networks: %w", i, err)
		}
		if families[is6] {
			return nil, fmt.Errorf("row %d of networks: a row before it has the same address family", i)
		}
		families[is6] = true
	}
	return rows, nil
}

// SetRows sets rows and fields. Readers of an earlier version read the first row.
func (s *NetworkConfigSpec) SetRows(rows []Networks) {
	s.Networks, s.PodCIDR, s.ExternalCIDR = rows, rows[0].PodCIDR, rows[0].ExternalCIDR
	if delete(s.BackendConfig, NetworksEntry); s.StatesMore() {
		if s.BackendConfig == nil {
			s.BackendConfig = map[string]string{}
		}
		s.BackendConfig[NetworksEntry] = digest(rows)
	}
}

// Covered reports whether a signature over the fields covers the rows: they state no more, or backend_config has their digest.
func (s *NetworkConfigSpec) Covered() bool {
	return !s.StatesMore() || s.BackendConfig[NetworksEntry] == digest(s.Networks)
}

// StatesMore reports whether the rows state more than the fields. Rows that do not are not carried to another cluster, which may be of an earlier version and
// not know them.
func (s *NetworkConfigSpec) StatesMore() bool {
	return len(s.Networks) > 1 || len(s.Networks) == 1 && s.Networks[0] != Networks{s.PodCIDR, s.ExternalCIDR}
}

// Carried returns what is carried to another cluster: the same, without rows that only repeat.
func (s *NetworkConfigSpec) Carried() NetworkConfigSpec {
	carried := *s.DeepCopy()
	if !s.StatesMore() {
		carried.Networks = nil
	}
	return carried
}

// Rows returns the networks under which the receiver reaches each row of the sender. It is an error if the rows and the fields disagree.
func (s *NetworkConfigStatus) Rows() ([]NetworksNAT, error) {
	fields := NetworksNAT{s.PodCIDRNAT, s.ExternalCIDRNAT}
	if len(s.Networks) == 0 {
		return []NetworksNAT{fields}, nil
	}
	if s.Networks[0] != fields {
		return nil, errors.New("the first row of networks in the answer is not what podCIDRNAT and externalCIDRNAT are")
	}
	return s.Networks, nil
}

// SetRows sets rows and fields; none for a refusal.
func (s *NetworkConfigStatus) SetRows(rows []NetworksNAT) {
	s.Networks, s.PodCIDRNAT, s.ExternalCIDRNAT = rows, "", ""
	if len(rows) > 0 {
		s.PodCIDRNAT, s.ExternalCIDRNAT = rows[0].PodCIDRNAT, rows[0].ExternalCIDRNAT
	}
}

// StatesMore reports whether the rows state more than the fields.
func (s *NetworkConfigStatus) StatesMore() bool {
	return len(s.Networks) > 1 || len(s.Networks) == 1 && s.Networks[0] != NetworksNAT{s.PodCIDRNAT, s.ExternalCIDRNAT}
}

// Rows returns the networks of both clusters, one row for each address family. The fields count if the first row is another one: agents and gateways of an
// earlier version, which run on during an upgrade, read nothing else, and only this cluster writes the object.
func (s *TunnelEndpointSpec) Rows() []TunnelNetworks {
	fields := TunnelNetworks{
		s.LocalPodCIDR, s.LocalNATPodCIDR, s.LocalExternalCIDR, s.LocalNATExternalCIDR,
		s.RemotePodCIDR, s.RemoteNATPodCIDR, s.RemoteExternalCIDR, s.RemoteNATExternalCIDR,
	}
	if len(s.Networks) == 0 || fields != (TunnelNetworks{}) && s.Networks[0] != fields {
		return []TunnelNetworks{fields}
	}
	return s.Networks
}

// digest covers all rows. A text cannot end a field: no address has a line feed.
func digest(rows []Networks) string {
	hash := sha256.New()
	for i := range rows {
		fmt.Fprintf(hash, "%q %q\n", rows[i].PodCIDR, rows[i].ExternalCIDR)
	}
	return base64.StdEncoding.EncodeToString(hash.Sum(nil))
}

// family returns whether both networks are of IPv6.
func family(pods, external CIDR) (is6 bool, err error) {
	first, err := netip.ParsePrefix(string(pods))
	if err != nil {
		return false, fmt.Errorf("podCIDR %.60q is not a network in CIDR notation", pods)
	}
	second, err := netip.ParsePrefix(string(external))
	if err != nil {
		return false, fmt.Errorf("externalCIDR %.60q is not a network in CIDR notation", external)
	}
	if first.Addr().Is6() != second.Addr().Is6() {
		return false, fmt.Errorf("podCIDR %s and externalCIDR %s are of two address families", first, second)
	}
	return first.Addr().Is6(), nil
}
