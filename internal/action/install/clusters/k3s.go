// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"cmp"
	"slices"
	"strings"
)

// k3s publishes none of its settings: its control plane is one process without pods. The documentation exposes it by ports of
// nodes, and compares no address of the API server, because its kubeconfig holds a local one.
var k3s = Type{
	Name: "k3s", Flags: addresses,
	Recognised: func(f Facts) bool {
		return slices.ContainsFunc(f.Kubelets, func(version string) bool { return strings.Contains(version, "+k3s") })
	},
	Complete: func(_ Facts, _ Overrides, p *Plan) {
		p.PodCIDR, p.ServiceCIDR = cmp.Or(p.PodCIDR, "10.42.0.0/16"), cmp.Or(p.ServiceCIDR, "10.43.0.0/16")
		p.ServiceType = cmp.Or(p.ServiceType, "NodePort")
	},
	LocalAPIServer: true, AnyAPIServer: true,
}
