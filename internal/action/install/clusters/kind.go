// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"slices"
	"strings"
)

// kind is kubeadm in containers: without load balancers, and its API server is at a port of this machine.
var kind = Type{
	Name: "kind", Flags: addresses,
	Recognised: func(f Facts) bool {
		return slices.ContainsFunc(f.ProviderIDs, func(id string) bool { return strings.HasPrefix(id, "kind://") })
	},
	Reads:    kubeadm.Reads,
	Networks: kubeadmNetworks,
	Complete: func(f Facts, o Overrides, p *Plan) {
		completeKubeadm(f, o, p)
		p.ServiceType = cmp.Or(p.ServiceType, "NodePort")
	},
	LocalAPIServer: true,
}
