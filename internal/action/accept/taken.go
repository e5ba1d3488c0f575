// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/reach"
)

// NetworkWords are what an administrator wants for networks of the other cluster.
type NetworkWords struct {
	// Keep are used as they are, Force as well, although nodes here reach them without the other cluster.
	Keep, Force []string
}

// taken is a network that leads somewhere in this cluster already.
type taken struct {
	network netip.Prefix
	what    string
	// own: a network of this cluster. node: nodes reach it by routes of their own, which an administrator may overrule.
	own, node bool
}

// Leads are where networks lead in this cluster already.
type Leads struct {
	taken []taken
	// unreported are nodes that have not reported what they reach, so that more may be taken.
	unreported []string
}

// ReadLeads collects what leads somewhere here. clusterID is the other cluster, whose own networks do not count.
func ReadLeads(ctx context.Context, c client.Client, namespace, clusterID string) (Leads, error) {
	var (
		nodes    corev1.NodeList
		recorded corev1.ConfigMap
		reports  netv1alpha1.NodeReportList
		tunnels  netv1alpha1.TunnelEndpointList
		set      appsv1.DaemonSet
		agents   reach.Agents
	)
	err := await.Retry(ctx, func(ctx context.Context) error {
		if err := c.List(ctx, &nodes); err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: installed.NetworksName}, &recorded); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", namespace, installed.NetworksName, err)
		}
		// An earlier version of Liqo has no reports.
		err := c.List(ctx, &reports, client.InNamespace(namespace))
		switch reported := err == nil; {
		case err != nil && !installed.NotServed(err) && !meta.IsNoMatchError(err):
			return fmt.Errorf("list NodeReports: %w", err)
		case reported:
			err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: installed.RouteName}, &set)
			if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) { // without it, no node is named
				return fmt.Errorf("read DaemonSet %s/%s: %w", namespace, installed.RouteName, err)
			}
			if err == nil {
				agents = reach.AgentsOf(&set)
			}
		}
		if err := c.List(ctx, &tunnels); err != nil && !installed.NotServed(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("list TunnelEndpoints: %w", err)
		}
		return nil
	})
	if err != nil {
		return Leads{}, err
	}
	unreported := agents.Unreported(nodes.Items, reports.Items, time.Now())
	return Leads{
		taken:      takenBy(nodes.Items, recorded.Data, reports.Items, others(tunnels.Items, clusterID)),
		unreported: slices.Sorted(slices.Values(slices.Concat(unreported.Awaited, unreported.Others))),
	}, nil
}

func others(tunnels []netv1alpha1.TunnelEndpoint, clusterID string) []netv1alpha1.TunnelEndpoint {
	return slices.DeleteFunc(tunnels, func(one netv1alpha1.TunnelEndpoint) bool { return one.Spec.ClusterIdentity.ClusterID == clusterID })
}

// takenBy is pure.
func takenBy(nodes []corev1.Node, recorded map[string]string, reports []netv1alpha1.NodeReport, tunnels []netv1alpha1.TunnelEndpoint) (all []taken) {
	add := func(text, what string, own bool) {
		if network, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			all = append(all, taken{network: network.Masked(), what: what, own: own})
		}
	}
	for _, key := range []string{"POD_CIDR", "SERVICE_CIDR", "EXTERNAL_CIDR", "RESERVED_SUBNETS"} {
		for text := range strings.SplitSeq(recorded[key], ",") {
			add(text, "this cluster, "+key, key != "RESERVED_SUBNETS")
		}
	}
	for i := range nodes {
		for _, address := range nodes[i].Status.Addresses {
			if at, err := netip.ParseAddr(address.Address); err == nil && nodes[i].Labels[labels.Type] != labels.TypeVirtualNode {
				add(netip.PrefixFrom(at, at.BitLen()).String(), "address of node "+nodes[i].Name, false)
			}
		}
	}
	var own []ipam.Use
	for _, one := range all {
		if one.own {
			own = append(own, ipam.Use{Name: one.what, Network: one.network})
		}
	}
	for _, one := range reach.Reported(reports, nodes, own) {
		all = append(all, taken{network: one.Network, what: one.Name, node: true})
	}
	for i := range tunnels {
		spec, what := &tunnels[i].Spec, "cluster "+tunnels[i].Spec.ClusterIdentity.ClusterName
		for _, one := range [][2]string{{spec.RemoteNATPodCIDR, string(spec.RemotePodCIDR)}, {spec.RemoteNATExternalCIDR, string(spec.RemoteExternalCIDR)}} {
			nat := one[0]
			if nat == netv1alpha1.NotRemapped {
				nat = ""
			}
			add(cmp.Or(nat, one[1]), what, false)
		}
	}
	return all
}

// JudgeBoth judges words about both clusters of a pair: those about this cluster itself do not count.
func (w NetworkWords) JudgeBoth(announces []string, known Leads, p action.Progress) error {
	return w.withoutOwn(known.taken).judge(announces, known, p)
}

// withoutOwn leaves out the networks of this cluster itself: those of both clusters are in the lists for an in-band peering.
func (w NetworkWords) withoutOwn(all []taken) NetworkWords {
	foreign := func(networks []string) []string {
		return slices.DeleteFunc(slices.Clone(networks), func(text string) bool {
			return slices.ContainsFunc(all, func(t taken) bool { return t.own && t.network.String() == text })
		})
	}
	return NetworkWords{Keep: foreign(w.Keep), Force: foreign(w.Force)}
}

// in returns what leads into a network here already.
func in(network string, all []taken) (found []taken) {
	one, err := netip.ParsePrefix(network)
	if err != nil {
		return nil
	}
	for _, t := range all {
		if t.network.Overlaps(one) {
			found = append(found, t)
		}
	}
	return found
}

// describeTaken names the first ones.
func describeTaken(found []taken) string {
	var uses []ipam.Use
	for _, one := range found {
		uses = append(uses, ipam.Use{Name: one.what, Network: one.network})
	}
	return reach.Describe(uses)
}

// Check refuses what is no network, before anything is read.
func (w NetworkWords) Check() error {
	if err := CheckNetworks("--keep-networks", w.Keep); err != nil {
		return err
	}
	return CheckNetworks("--force-network", w.Force)
}

// refusals are why words are not written: something here leads there already.
func (w NetworkWords) refusals(all []taken) (refused []string) {
	for _, network := range added(w.Force, w.Keep) {
		forced := slices.Contains(w.Force, network)
		found := slices.DeleteFunc(in(network, all), func(t taken) bool { return forced && t.node })
		if len(found) == 0 {
			continue
		}
		text := fmt.Sprintf("%s: %s", network, describeTaken(found))
		if !slices.ContainsFunc(found, func(t taken) bool { return !t.node }) {
			text += fmt.Sprintf("; if it is to lead to the other cluster nevertheless, and not where the nodes reach it now: --force-network %s", network)
		}
		refused = append(refused, text)
	}
	return refused
}

// judge shows what leads already into the networks that the other cluster announces, and into those of the words, and refuses words before anything is changed.
func (w NetworkWords) judge(announces []string, known Leads, p action.Progress) error {
	all := known.taken
	for _, network := range added(added(announces, w.Keep), w.Force) {
		switch found := in(network, all); {
		case len(found) > 0 && !slices.Contains(added(w.Keep, w.Force), network):
			p.Info(fmt.Sprintf("%s of the other cluster: here, this leads elsewhere: %s; this cluster uses other addresses for it", network, describeTaken(found)))
		case len(found) > 0:
			p.Info(fmt.Sprintf("%s of the other cluster: here, this leads elsewhere: %s", network, describeTaken(found)))
		case slices.Contains(announces, network):
			p.Info(fmt.Sprintf("%s of the other cluster: nothing that this cluster knows is there", network))
		}
	}
	if len(known.unreported) > 0 {
		show := p.Info
		if len(w.Keep)+len(w.Force) > 0 {
			show = p.Warn
		}
		show(fmt.Sprintf("More may be there: these nodes have not reported what they reach: %s; before a network is used as announced, Liqo waits for those "+
			"that are Ready, at most %s; see `kubectl get nodereports -A`",
			reach.First(known.unreported), reach.ReportTimeout))
	}
	if refused := w.refusals(all); len(refused) > 0 {
		return fmt.Errorf("networks of the other cluster cannot be used as they are, because addresses in them lead elsewhere here: %s; nothing was changed",
			strings.Join(refused, "; "))
	}
	return nil
}

// Write writes the words into the ForeignCluster.
func (w NetworkWords) Write(ctx context.Context, c client.Client, name string, p action.Progress) error {
	if len(w.Keep)+len(w.Force) == 0 {
		return nil
	}
	err := writeNetworks(ctx, c, name, func(network *discoveryv1alpha1.PeerNetwork) {
		network.PodCIDRs = added(network.PodCIDRs, added(w.Keep, w.Force))
		network.ForcedCIDRs = added(network.ForcedCIDRs, w.Force)
	})
	if err != nil {
		return err
	}
	p.Done(fmt.Sprintf("Networks used as announced: %s", strings.Join(added(w.Keep, w.Force), ", ")))
	return nil
}
