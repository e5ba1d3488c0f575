// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
)

const (
	// maxNames bounds how many nodes a text names, maxDescribed how many networks.
	maxNames, maxDescribed = 5, 4
)

// Reported returns the networks that nodes reach without a peer, each once, with the nodes. It leaves out the reports of nodes that do not exist, and
// networks of this cluster: those are used anyway.
func Reported(reports []netv1alpha1.NodeReport, nodes []corev1.Node, own []ipam.Use) (all []ipam.Use) {
	type way struct {
		network netip.Prefix
		how     string
	}
	by := map[way][]string{}
	var order []way
	exists := make(map[string]bool, len(nodes))
	for i := range nodes {
		exists[nodes[i].Name] = nodes[i].Labels[labels.Type] != labels.TypeVirtualNode
	}
	for i := range reports {
		report := &reports[i]
		if !exists[report.Name] {
			continue
		}
		for _, one := range report.Spec.Networks {
			network, err := netip.ParsePrefix(string(one.CIDR))
			if err != nil || ipam.Check(network) != nil || network.Bits() < Widest || slices.ContainsFunc(own, func(use ipam.Use) bool {
				return use.Name != ipam.ReservedName && use.Network.Bits() <= network.Bits() && use.Network.Overlaps(network)
			}) {
				continue
			}
			key := way{network, how(&one)}
			if by[key] == nil {
				order = append(order, key)
			}
			by[key] = append(by[key], report.Name)
		}
	}
	slices.SortFunc(order, func(a, b way) int {
		if c := a.network.Compare(b.network); c != 0 {
			return c
		}
		return strings.Compare(a.how, b.how)
	})
	for _, key := range order {
		all = append(all, ipam.Use{Name: Nodes(by[key]) + " " + key.how, Network: key.network})
	}
	return all
}

func how(one *netv1alpha1.NodeNetwork) string {
	text := "by a route"
	switch one.Kind {
	case netv1alpha1.NodeNetworkResolver:
		return "as its resolver"
	case netv1alpha1.NodeNetworkLink:
		text = "by its link"
	case netv1alpha1.NodeNetworkRoute:
	}
	if one.Link != "" {
		text += " " + one.Link
	}
	return text
}

// Describe names networks, the first ones, and where they lead.
func Describe(uses []ipam.Use) string {
	var texts []string
	for _, use := range uses {
		texts = append(texts, fmt.Sprintf("%s (%s)", use.Network, use.Name))
	}
	return First(texts)
}

// First lists the first texts, and how many more there are.
func First(texts []string) string {
	if more := len(texts) - maxDescribed; more > 0 {
		texts = append(slices.Clone(texts[:maxDescribed]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// Nodes names nodes, the first ones by name.
func Nodes(all []string) string {
	all = slices.Sorted(slices.Values(all))
	text := "node "
	if len(all) > 1 {
		text = "nodes "
	}
	text += strings.Join(all[:min(len(all), maxNames)], ", ")
	if more := len(all) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
