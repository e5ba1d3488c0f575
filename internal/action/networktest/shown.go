// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"fmt"
	"net/netip"

	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/matrix"
)

// notTested is why the addresses that the other cluster shows for the pods of this one are not tested; empty if they are.
func (s *end) notTested(other *end) string {
	switch {
	case s.view.localPods == s.view.localPodsSeen:
		return fmt.Sprintf("%s shows the pods of %s at the addresses that they have there, so there are no others to test", other.name, s.name)
	case !s.shown:
		return fmt.Sprintf("%s shows the pods of %s at addresses in %s, which lead to them for pods of %[1]s only: in %[2]s that network is in other use, or "+
			"not set apart, or the peering was agreed by an earlier version; "+
			"see `liqoctl status peer --verbose` in %[2]s", other.name, s.name, s.view.localPodsSeen)
	}
	return ""
}

// pair reports whether a second pod on the first node takes part: it and the first one are at the same node.
func (s *end) pair(other *end) bool { return s.notTested(other) == "" }

// planShown returns the paths between pods of one cluster, at the addresses that the other one shows for them: from each node to the next one, because the
// node of the
// client leads the packet, and between two pods of one node, whose client comes from the address that is shown for it.
func planShown(in, other *end, large int64) (paths []path) {
	if in.notTested(other) != "" {
		return nil
	}
	v := in.view
	add := func(source, target pod) {
		p := path{
			title: podToShown, remote: in.remote, namespace: in.namespace, pod: source.name, fromCluster: in.name, from: "pod on " + source.node,
			toCluster: in.name, to: "pod on " + target.node, servers: []string{target.name},
		}
		address, ok := ipam.Swap(target.address, v.localPods, v.localPodsSeen)
		p.aim(address, ok, matrix.Port)
		for _, one := range append([]netip.Prefix{v.localPods}, in.shownAs...) { // each is an address of the client in this cluster, which its node may choose
			if source, ok := ipam.Swap(source.address, v.localPods, one); ok {
				p.sources = append(p.sources, netip.PrefixFrom(source, source.BitLen()))
			}
		}
		paths = append(paths, p)
	}
	var pods []pod
	for _, one := range in.pods {
		switch one.kind {
		case networkPod:
			pods = append(pods, one)
		case pairPod:
			add(one, in.first())
		}
	}
	for i := range pods {
		if len(pods) > 1 {
			add(pods[i], pods[(i+1)%len(pods)])
		}
	}
	return spread(paths, large)
}
