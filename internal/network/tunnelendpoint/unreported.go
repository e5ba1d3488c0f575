// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/reach"
)

// +kubebuilder:rbac:namespace=liqo,groups=apps,resources=daemonsets,resourceNames=liqo-route,verbs=get

// AgentsName is the name of the DaemonSet of the agents on nodes.
const AgentsName = "liqo-route"

// awaits is what nodes have not reported for an agreement.
type awaits struct {
	// held are networks of the peer that are not used as they are yet. The text names the nodes.
	held []netip.Prefix
	text string
	// unreported are nodes that are not waited for any more, used what leads to the peer nevertheless.
	unreported []string
	used       []netip.Prefix
}

// inUse returns under which prefixes the networks that a peer claims are in use; invalid if they are not.
func (s *scope) inUse(pools *ipam.Pools) (now agreement) {
	now.pods, _ = pools.InUse(s.Namespace, ipam.PodNetwork, s.claim.Pods)
	now.external, _ = pools.InUse(s.Namespace, ipam.ExternalNetwork, s.claim.External)
	return now
}

// newly returns the networks of the peer that an agreement leads to it for the first time, where hosts of this cluster may be. Those that an administrator
// forces lead to it whatever nodes reach.
func newly(w pools.Words, s *scope, before agreement) (claimed, leading []netip.Prefix) {
	for _, one := range []struct{ own, now, was netip.Prefix }{
		{s.claim.Pods, s.agreed.pods, before.pods}, {s.claim.External, s.agreed.external, before.external},
	} {
		if one.now != one.was && !ipam.HasNoHosts(one.now) && !w.Forces(s.Namespace, one.own) {
			claimed, leading = append(claimed, one.own), append(leading, one.now)
		}
	}
	return claimed, leading
}

// awaitReports holds an agreement back while nodes are about to report that they reach a part of what it leads to the peer for the first time. What was in use
// before stays. The reports are those from which the agreement was made.
func (r *reconciler) awaitReports(ctx context.Context, s *scope, all *pools.Records, before agreement) error {
	claimed, leading := newly(r.Pools.WordsOf(all), s, before)
	if len(leading) == 0 {
		return nil
	}
	agents, err := r.agents(ctx)
	if err != nil {
		return err
	}
	now := r.Now()
	unreported := agents.Unreported(all.Nodes, all.Reports, now)
	if len(unreported.Awaited) == 0 {
		s.awaits = awaits{unreported: unreported.Others, used: leading}
		return nil
	}
	s.requeue(unreported.Until.Sub(now))
	until := unreported.Until.UTC().Format(time.RFC3339)
	s.awaits = awaits{held: claimed, text: fmt.Sprintf("that waits until %s have reported what they reach, or until %s; see `kubectl -n %s get "+
		"daemonset %s` and `kubectl -n %[3]s get nodereports`",
		reach.Nodes(unreported.Awaited), until, r.Namespace, AgentsName)}
	if before.pods.IsValid() && before.external.IsValid() {
		s.agreed = before
		return nil
	}
	// The peer reads this as well, so it names no node.
	s.refused = claim.Refuse(netv1alpha1.ReasonNodesUnreported, "nodes of the receiving cluster have not reported yet what they reach, and %s "+
		"may be a part of that; the answer follows when they have, or at %s; "+
		"an event of ForeignCluster %s there names the nodes", joined(leading), until, s.FC.Name)
	return nil
}

// agents reads the DaemonSet, live, because it is rarely needed.
func (r *reconciler) agents(ctx context.Context) (reach.Agents, error) {
	var set appsv1.DaemonSet
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: AgentsName}, &set)
	switch {
	case apierrors.IsNotFound(err):
		return reach.Agents{}, nil
	case err != nil:
		return reach.Agents{}, fmt.Errorf("read DaemonSet %s/%s: %w", r.Namespace, AgentsName, err)
	}
	return reach.AgentsOf(&set), nil
}

// recordUnreported records an event at the ForeignCluster when an answer begins to wait for reports of nodes, and when it was given without some.
func (r *reconciler) recordUnreported(s *scope, answer *netv1alpha1.NetworkConfigStatus) {
	event := func(action, text string, values ...any) { // of two events with one action, the recorder drops the text of the second
		r.events.Eventf(s.FC, nil, corev1.EventTypeWarning, netv1alpha1.ReasonNodesUnreported, action, "%s", fmt.Sprintf(text, values...))
	}
	switch before, now := meta.FindStatusCondition(s.theirs.Status.Conditions, netv1alpha1.ConditionReady),
		meta.FindStatusCondition(answer.Conditions, netv1alpha1.ConditionReady); {
	case s.refused == nil && len(s.awaits.unreported) > 0:
		event("UseNetwork", "%s leads to cluster %s now, and what %s reach is not known: no report came; if a host is there, take the network "+
			"back from spec.network of the ForeignCluster; see `kubectl -n %s get pods -o wide`",
			joined(s.awaits.used), s.Peer.ClusterName, reach.Nodes(s.awaits.unreported), r.Namespace)
	case s.refused != nil && s.refused.Reason == netv1alpha1.ReasonNodesUnreported && (before == nil || before.Reason != now.Reason):
		event("AgreeNetwork", "cluster %s gets no answer for %s yet: %s", s.Peer.ClusterName, joined(s.awaits.held), s.awaits.text)
	}
}

func joined(networks []netip.Prefix) string {
	var texts []string
	for _, one := range networks {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, ", ")
}
