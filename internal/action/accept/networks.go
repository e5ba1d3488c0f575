// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/kube/printable"
)

// ownerNetworks owns the networks that were written down. Another run of the command without them leaves them as they are.
const ownerNetworks = "liqoctl-networks"

// CheckNetworks refuses what is no network, before anything is changed. flag is what the user wrote them after.
func CheckNetworks(flag string, networks []string) error {
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

// writeNetworks changes what is written down of a peer's networks.
func writeNetworks(ctx context.Context, c client.Client, name string, change func(*discoveryv1alpha1.PeerNetwork)) error {
	err := await.Retry(ctx, func(ctx context.Context) error {
		fc, err := foreign.Get(ctx, c, name)
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

// ShowNetworks prints what the peer announces and where it is here. What it prints is not needed for the peering, so without it there is no error.
func ShowNetworks(ctx context.Context, c client.Client, name string, p action.Progress) {
	fc, err := foreign.Get(ctx, c, name)
	if err != nil {
		return
	}
	if config, err := announcement(ctx, c, fc); err == nil && config != nil && config.Status.Processed {
		p.Info(announced(config))
	}
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
		switch one.here {
		case "": // not decided
		case netv1alpha1.NotRemapped:
			text += ", where this cluster reaches them as well"
		default:
			text += fmt.Sprintf(", and this cluster reaches them as %s", one.here)
		}
	}
	return printable.Line(text, 300)
}

// Peer is the cluster that words are about, and the namespace of Liqo here. foreign is nil if this cluster does not know it yet; then it announces nothing
// either.
type Peer struct {
	Namespace, ClusterID string
	Foreign              *discoveryv1alpha1.ForeignCluster
}

// JudgeFor judges the words about a cluster.
func (w NetworkWords) JudgeFor(ctx context.Context, c client.Client, about Peer, p action.Progress) error {
	fc, clusterID, announces := about.Foreign, about.ClusterID, []string(nil)
	if fc != nil {
		config, err := announcement(ctx, c, fc)
		if err != nil {
			return err
		}
		if config != nil {
			p.Info(announced(config))
			for _, one := range networksOf(config) {
				if CheckNetworks("", []string{one}) == nil {
					announces = append(announces, one)
				}
			}
		}
		clusterID = foreign.IdentityOf(fc)
	}
	if len(announces)+len(w.Keep)+len(w.Force) == 0 {
		return nil
	}
	all, err := ReadLeads(ctx, c, about.Namespace, clusterID)
	if err != nil && len(w.Keep)+len(w.Force) == 0 { // it would only be shown
		p.Warn(fmt.Sprintf("What leads to networks of the other cluster is not shown: %v", err))
		return nil
	} else if err != nil {
		return err
	}
	return w.judge(announces, all, p)
}
