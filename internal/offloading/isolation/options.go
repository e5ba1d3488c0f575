// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"

	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"
)

// Peers are entries of from or to in a NetworkPolicy.
type Peers []*networkingapply.NetworkPolicyPeerApplyConfiguration

// Options are what the administrator decides.
type Options struct {
	// Enabled: remote namespaces have a NetworkPolicy.
	Enabled bool
	// Clients may connect to pods of peers, besides the peering itself and addresses that are no pods of this cluster.
	Clients Peers
	// Servers are what pods of peers may connect to, besides the peering itself, DNS, and public addresses.
	Servers Peers
	// DNS are the name servers of pods.
	DNS Peers
	// Denied are public networks that pods of peers may not connect to.
	Denied []netip.Prefix
}

// ParsePeers reads a list of peers of a NetworkPolicy in JSON. It refuses unknown fields and empty entries: Kubernetes would read these as everything.
func ParsePeers(text string) (Peers, error) {
	if text == "" {
		return nil, nil
	}
	var all Peers
	decoder := json.NewDecoder(bytes.NewBufferString(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("%q is not a list of peers of a NetworkPolicy (%w); use for example [{\"ipBlock\": {\"cidr\": \"192.168.1.5/32\"}}]", text, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%q has text after the list; remove it", text)
	}
	for i, peer := range all {
		if err := checkPeer(peer); err != nil {
			return nil, fmt.Errorf("entry %d of %q %w", i, text, err)
		}
	}
	return all, nil
}

func checkPeer(peer *networkingapply.NetworkPolicyPeerApplyConfiguration) error {
	switch {
	case peer == nil || peer.PodSelector == nil && peer.NamespaceSelector == nil && peer.IPBlock == nil:
		return errors.New("selects nothing; set podSelector, namespaceSelector or ipBlock")
	case peer.IPBlock == nil:
		return nil
	case peer.PodSelector != nil || peer.NamespaceSelector != nil:
		return errors.New("has an ipBlock and a selector; make two entries of it")
	case peer.IPBlock.CIDR == nil:
		return errors.New("has an ipBlock without cidr")
	}
	block, err := netip.ParsePrefix(*peer.IPBlock.CIDR)
	if err != nil {
		return fmt.Errorf("has the cidr %q, which is not a network", *peer.IPBlock.CIDR)
	}
	for _, text := range peer.IPBlock.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil || except.Bits() <= block.Bits() || !block.Contains(except.Addr()) {
			return fmt.Errorf("excepts %q, which is not a network inside %s", text, block)
		}
	}
	return nil
}
