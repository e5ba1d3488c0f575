// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
)

// ownerNetworks owns the networks that were written down. Another run of the command without them leaves them as they are.
const ownerNetworks = "liqoctl-networks"

// checkNetworks refuses what is no network, before anything is changed. flag is what the user wrote them after.
func checkNetworks(flag string, networks []string) error {
	for _, text := range networks {
		if network, err := netip.ParsePrefix(text); err != nil || network != network.Masked() {
			return fmt.Errorf("%s %.60q: want networks such as 10.201.0.0/16, as the other cluster announces them", flag, text)
		}
	}
	return nil
}

// added returns a list of networks with others, each once.
func added(to, networks []string) []string {
	all := slices.Clone(to)
	for _, one := range networks {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// keepNetworks writes networks of a peer into its ForeignCluster: the word of the administrator who runs the command that this cluster uses them as they are.
// It names the nodes here that have an address in one of them, and writes nothing then.
func keepNetworks(ctx context.Context, c client.Client, name string, networks []string, p Progress) error {
	if len(networks) == 0 {
		return nil
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if there := nodesIn(nodes.Items, networks); len(there) > 0 {
		return fmt.Errorf("--keep-networks: addresses of this cluster would lead to the other one: %s; name other networks", strings.Join(there, ", "))
	}
	err := writeNetworks(ctx, c, name, func(network *discoveryv1alpha1.PeerNetwork) { network.PodCIDRs = added(network.PodCIDRs, networks) })
	if err != nil {
		return err
	}
	p.Done(fmt.Sprintf("Networks used as announced: %s", strings.Join(networks, ", ")))
	return nil
}

// writeNetworks changes what is written down of a peer's networks.
func writeNetworks(ctx context.Context, c client.Client, name string, change func(*discoveryv1alpha1.PeerNetwork)) error {
	err := retry(ctx, func(ctx context.Context) error {
		fc, err := ForeignCluster(ctx, c, name)
		if err != nil {
			return err
		}
		before := fc.DeepCopy()
		if fc.Spec.Network == nil {
			fc.Spec.Network = &discoveryv1alpha1.PeerNetwork{}
		}
		change(fc.Spec.Network)
		return c.Patch(ctx, fc, client.MergeFrom(before), client.FieldOwner(ownerNetworks))
	})
	if err != nil {
		return fmt.Errorf("write networks into ForeignCluster %q: %w", name, err)
	}
	return nil
}

// nodesIn returns the nodes with an address in one of the networks, with the address.
func nodesIn(nodes []corev1.Node, networks []string) (there []string) {
	for i := range nodes {
		for _, address := range nodes[i].Status.Addresses {
			at, err := netip.ParseAddr(address.Address)
			if err == nil && slices.ContainsFunc(networks, func(text string) bool {
				network, err := netip.ParsePrefix(text)
				return err == nil && network.Contains(at)
			}) {
				there = append(there, fmt.Sprintf("%s of node %s", at, nodes[i].Name))
			}
		}
	}
	return there
}

// showNetworks prints what the peer announces and where it is here. What it prints is not needed for the peering, so without it there is no error.
func showNetworks(ctx context.Context, c client.Client, name string, p Progress) {
	fc, err := ForeignCluster(ctx, c, name)
	if err != nil || fc.Spec.ClusterIdentity == nil || fc.Status.TenantNamespace.Local == "" {
		return
	}
	var config netv1alpha1.NetworkConfig
	key := client.ObjectKey{Namespace: fc.Status.TenantNamespace.Local, Name: fc.Spec.ClusterIdentity.NetworkConfigName()}
	if c.Get(ctx, key, &config) != nil || !config.Status.Processed {
		return
	}
	p.Info(announced(&config))
}

func announced(config *netv1alpha1.NetworkConfig) string {
	text := "The other cluster announces"
	for i, one := range []struct{ what, own, here string }{
		{"its pods", string(config.Spec.PodCIDR), config.Status.PodCIDRNAT}, {"its other addresses", string(config.Spec.ExternalCIDR), config.Status.ExternalCIDRNAT},
	} {
		if i > 0 {
			text += ", and"
		}
		text += fmt.Sprintf(" %s as %s", one.what, one.own)
		if one.here == netv1alpha1.NotRemapped {
			text += ", where this cluster reaches them as well"
		} else {
			text += fmt.Sprintf(", and this cluster reaches them as %s", one.here)
		}
	}
	return printable.Line(text, 300)
}
