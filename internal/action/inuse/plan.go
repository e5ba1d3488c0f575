// SPDX-License-Identifier: Apache-2.0

// Package inuse decides what forbids the uninstallation of Liqo: what users have to end first, and what is ending already and is only waited for.
//
// plan.go is pure. The package must not know how anything is ended. Its proof is inuse_test.go, a table and an API server.
package inuse

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action/deletion"
	"liqo.io/liqo/internal/kube/ending"
)

// Error holds the uses of Liqo that forbid an uninstallation.
type Error struct {
	// Outgoing and Incoming are the clusters with such a peering, Networks those with a tunnel, Namespaces are offloaded, and Moves are NAMESPACE/CLAIM.
	Outgoing, Incoming, Networks, Namespaces, Moves []string
	// Ending is what ends without the user.
	Ending []Ending
}

// Ending is one thing that is ending already.
type Ending struct {
	// What it is, which stays the same while it ends, and State is that and what it waits for.
	What, State string
}

func (e *Error) Error() string {
	text := "Liqo is in use, so nothing was changed; before it is uninstalled, you should:"
	for _, group := range []struct {
		do    string
		names []string
	}{
		{"disable the outgoing peering with these clusters (`liqoctl unpeer out-of-band NAME`)", e.Outgoing},
		{"disable the incoming peering of these clusters (`liqoctl unpeer out-of-band NAME`, here or in the other cluster)", e.Incoming},
		{"disable the network with these clusters", e.Networks},
		{"disable the offloading of these namespaces (`liqoctl unoffload namespace NAME`)", e.Namespaces},
		{"wait until the moves of the volumes of these claims end, or take them back (`liqoctl move volume CLAIM -n NAMESPACE --cancel`)", e.Moves},
	} {
		if len(group.names) > 0 {
			text += "\n- " + group.do + ":\n    - " + strings.Join(group.names, "\n    - ")
		}
	}
	if len(e.Ending) > 0 {
		text += "\nthese are ending already, and this command waits for them:\n    - " + strings.Join(states(e.Ending), "\n    - ")
	}
	return text
}

func states(all []Ending) (texts []string) {
	for _, one := range all {
		texts = append(texts, one.State)
	}
	return texts
}

// State is what a cluster has of Liqo.
type State struct {
	Peers       []discoveryv1alpha1.ForeignCluster
	Offloadings []offloadingv1alpha1.NamespaceOffloading
	Moves       []storagev1alpha1.VolumeMove
	// Namespaces are those of the offloadings, by name.
	Namespaces map[string]*corev1.Namespace
}

// Judge returns the uses that the user has to end, nil if there are none, and what is ending already.
func Judge(s State) (*Error, []Ending) {
	found := &Error{}
	for i := range s.Peers {
		found.judgePeer(&s.Peers[i])
	}
	for i := range s.Offloadings {
		one := &s.Offloadings[i]
		namespace := s.Namespaces[one.Namespace]
		if ending.Is(one) || namespace != nil && ending.Is(namespace) {
			found.ends("namespace "+one.Namespace, deletion.Offloading(one, namespace))
		} else {
			found.Namespaces = append(found.Namespaces, one.Namespace)
		}
	}
	for i := range s.Moves {
		switch one := &s.Moves[i]; {
		case one.Ended():
		case ending.Is(one):
			name := one.Namespace + "/" + one.Name
			found.ends("move "+name, fmt.Sprintf("the move of claim %s is still being taken back%s (phase %s: %s)", name, ending.Since(one), one.Status.Phase,
				one.Status.Message))
		default:
			found.Moves = append(found.Moves, one.Namespace+"/"+one.Name)
		}
	}
	slices.Sort(found.Namespaces)
	slices.Sort(found.Moves)
	slices.SortFunc(found.Ending, func(a, b Ending) int { return strings.Compare(a.What, b.What) })
	if len(found.Outgoing)+len(found.Incoming)+len(found.Networks)+len(found.Namespaces)+len(found.Moves) == 0 {
		return nil, found.Ending
	}
	return found, found.Ending
}

func (e *Error) ends(what, state string) { e.Ending = append(e.Ending, Ending{what, state}) }

// judgePeer adds the directions with a peer that are established or enabled. A direction whose end has begun ends without the user, and with the last one
// so does
// the network of an out-of-band peering. With a ForeignCluster that is being deleted, everything ends.
func (e *Error) judgePeer(peer *discoveryv1alpha1.ForeignCluster) {
	used, ends := false, false
	observed := peer.Status.ObservedGeneration >= peer.Generation
	for _, direction := range []struct {
		kind    discoveryv1alpha1.PeeringConditionType
		enabled discoveryv1alpha1.PeeringEnabled
		names   *[]string
	}{
		{discoveryv1alpha1.OutgoingPeering, peer.Spec.OutgoingPeeringEnabled, &e.Outgoing},
		{discoveryv1alpha1.IncomingPeering, peer.Spec.IncomingPeeringEnabled, &e.Incoming},
	} {
		status := statusOf(peer, direction.kind)
		wanted := direction.kind == discoveryv1alpha1.OutgoingPeering && direction.enabled == discoveryv1alpha1.PeeringYes
		switch {
		case !wanted && !up(status):
		case ending.Is(peer), !wanted && status == discoveryv1alpha1.StatusDisconnecting, direction.enabled == discoveryv1alpha1.PeeringNo && !observed:
			ends = true
		default:
			used = true
			*direction.names = append(*direction.names, peer.Name)
		}
	}
	if up(statusOf(peer, discoveryv1alpha1.NetworkStatus)) {
		if ending.Is(peer) || peer.Spec.PeeringType != discoveryv1alpha1.InBand && !used && (ends || observed) {
			ends = true
		} else {
			e.Networks = append(e.Networks, peer.Name)
		}
	}
	if ends {
		e.ends("peer "+peer.Name, deletion.Peer(peer))
	}
}

func statusOf(peer *discoveryv1alpha1.ForeignCluster, kind discoveryv1alpha1.PeeringConditionType) discoveryv1alpha1.PeeringConditionStatus {
	for _, condition := range peer.Status.PeeringConditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return discoveryv1alpha1.StatusNone
}

func up(status discoveryv1alpha1.PeeringConditionStatus) bool {
	return status != discoveryv1alpha1.StatusNone && status != discoveryv1alpha1.StatusExternal && status != ""
}
