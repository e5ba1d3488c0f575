// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"net/netip"
	"slices"

	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

// route is a destination and the neighbour on the cluster network that forwards to it.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// nodeState is the desired content of a node's kernel and files. A part that is not known (its
// flag is false) stays as it is: lack of information is no reason to remove.
type nodeState struct {
	cni            []byte // content of the CNI configuration; nil: leave the file
	routes         []route
	routesKnown    bool
	addresses      []netip.Addr // on the loopback device, so that the node answers for them
	addressesKnown bool
}

// knowledge is what the API has reported so far; a nil map has not been reported.
type knowledge struct {
	podCIDRs map[string]netip.Prefix // by real node; a node without one has no entry
	holders  map[netip.Addr]string   // load balancer address to the node that answers for it
}

// planNode returns the desired state of one node: a route to the pods of each other node, and
// its load balancer addresses.
func planNode(nodes map[string]settings.Node, name string, known knowledge) nodeState {
	state := nodeState{routesKnown: known.podCIDRs != nil, addressesKnown: known.holders != nil}
	if own, has := known.podCIDRs[name]; has {
		state.cni = renderCNI(own)
	}
	for peer, prefix := range known.podCIDRs {
		if node, has := nodes[peer]; has && peer != name {
			state.routes = append(state.routes, route{to: prefix, via: node.Address})
		}
	}
	for address, holder := range known.holders {
		if holder == name {
			state.addresses = append(state.addresses, address)
		}
	}
	slices.SortFunc(state.routes, func(a, b route) int { return a.to.Compare(b.to) })
	slices.SortFunc(state.addresses, netip.Addr.Compare)
	return state
}

// difference returns the elements to add to have, and those to remove from it, to get want.
func difference[T comparable](want, have []T) (add, remove []T) {
	for _, one := range want {
		if !slices.Contains(have, one) {
			add = append(add, one)
		}
	}
	for _, one := range have {
		if !slices.Contains(want, one) {
			remove = append(remove, one)
		}
	}
	return add, remove
}

// renderCNI returns the network configuration of a node with this pod prefix. The plugin ptp
// gives each pod a point-to-point device, so that no bridge and no bridge netfilter is
// needed. The plugin does not masquerade: one rule set per node does. Leases of addresses
// live in /run, which a restart of the node empties together with its pods.
func renderCNI(pods netip.Prefix) []byte {
	return bytes.ReplaceAll([]byte(`{
  "cniVersion": "1.0.0",
  "name": "playground",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [[{"subnet": "SUBNET"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {
      "type": "portmap",
      "capabilities": {"portMappings": true},
      "snat": true
    }
  ]
}
`), []byte("SUBNET"), []byte(pods.Masked().String()))
}
