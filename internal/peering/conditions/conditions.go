// SPDX-License-Identifier: Apache-2.0

// Package conditions makes the conditions of a ForeignCluster of what its controller has observed. TestConditions holds the documented table.
package conditions

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/peering/admission"
)

// Problem is why a ForeignCluster cannot be processed.
type Problem struct{ Reason, message string }

// NewProblem returns a problem, with one of the reasons of the API and a message for people.
func NewProblem(reason, message string) *Problem { return &Problem{reason, message} }

// Disowns reports whether the tenant of the cluster belongs to another ForeignCluster, or to none.
func (p *Problem) Disowns() bool {
	return p != nil && p.Reason != discoveryv1alpha1.ReasonInvalidProxyURL && p.Reason != discoveryv1alpha1.ReasonInBandNotSupported
}

// IdentityState is the state of our identity in the peer.
type IdentityState int

const (
	IdentityNotNeeded IdentityState = iota
	IdentityPending
	IdentityAccepted
	IdentityEmptyDenied
	IdentityDenied
	IdentityUnproven
	IdentityUnreachable
	IdentityVersion
	IdentityError
)

// Facts are the observations from which the conditions of a ForeignCluster are computed.
type Facts struct {
	Spec    *discoveryv1alpha1.ForeignClusterSpec
	Problem *Problem
	// Failure is the error of a phase: those after it observed nothing.
	Failure error
	// Outgoing: the spec asks for resources of the peer.
	Outgoing bool
	// Incoming is whether the peer may use this cluster; nil if that is not decided.
	Incoming *discoveryv1alpha1.IncomingStatus
	Identity IdentityState
	// IdentityMessage is for people; empty when the identity is accepted.
	IdentityMessage string
	// RenewedInside is why our identity was renewed through the tunnel; empty if it was not.
	RenewedInside string
	// ProxyURL is that of our proxy, for the peer; empty while it has none. reportedProxy is the one in the answer to the peer's requests.
	ProxyURL, ReportedProxy string
	// Admitted: the peer has registered its key here and may act.
	Admitted bool
	// Connected, probed (at least once), ready and connectionMessage describe the connection to the peer's API server.
	Connected, Probed, Ready bool
	ConnectionMessage        string
	// Slice is our request in this cluster, nil if there is none.
	Slice *sharingv1alpha1.ResourceSlice
	// NameTaken: a request of the peer has the name that ours would have.
	NameTaken bool
	// Copies are the peer's requests.
	Copies []sharingv1alpha1.ResourceSlice
	// InternalNetwork: the network fabric joins the clusters.
	InternalNetwork bool
	// OurNetwork is what we publish to the peer, peerNetwork what it publishes to us, tunnel the result; nil if there is none.
	OurNetwork, PeerNetwork *netv1alpha1.NetworkConfig
	Tunnel                  *netv1alpha1.TunnelEndpoint
}

// Current are those of a reconciliation; of one that failed, the ones before it, and why it failed: what it did not observe has not changed.
func Current(before []discoveryv1alpha1.PeeringCondition, f *Facts) []discoveryv1alpha1.PeeringCondition {
	switch {
	case f.Failure == nil:
		return all(f)
	case apierrors.IsConflict(f.Failure): // the next attempt sees the change
		return slices.Clone(before)
	}
	const limit = 512
	text := "it failed, and is tried again: " + f.Failure.Error()
	now := slices.DeleteFunc(slices.Clone(before), func(c discoveryv1alpha1.PeeringCondition) bool {
		return c.Type == discoveryv1alpha1.ProcessForeignClusterStatus
	})
	return append(now, condition(discoveryv1alpha1.ProcessForeignClusterStatus, discoveryv1alpha1.StatusError,
		discoveryv1alpha1.ReasonReconciliationFailed, printable.Line(text, limit)))
}

// all returns one condition per aspect, without times.
func all(f *Facts) []discoveryv1alpha1.PeeringCondition {
	return []discoveryv1alpha1.PeeringCondition{
		f.outgoingPeering(), f.incomingPeering(), f.network(), f.apiServer(), f.authentication(), f.processing(),
	}
}

func condition(
	kind discoveryv1alpha1.PeeringConditionType, status discoveryv1alpha1.PeeringConditionStatus, reason, message string,
) discoveryv1alpha1.PeeringCondition {
	return discoveryv1alpha1.PeeringCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

func (f *Facts) outgoingPeering() discoveryv1alpha1.PeeringCondition {
	is := func(status discoveryv1alpha1.PeeringConditionStatus, reason, message string) discoveryv1alpha1.PeeringCondition {
		return condition(discoveryv1alpha1.OutgoingPeering, status, reason, message)
	}
	if f.Slice == nil {
		if !f.Outgoing {
			return is(discoveryv1alpha1.StatusNone, discoveryv1alpha1.ReasonNoResourceRequest, "no resources of the remote cluster are wanted")
		}
		if f.NameTaken {
			return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonResourceRequestPending,
				"a request of the remote cluster has the name of this cluster, which our request would have: two clusters that use each other need "+
					"different names (Helm value discovery.config.clusterName)")
		}
		return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonResourceRequestPending, "the request for resources is not written yet")
	}
	if f.Slice.DeletionTimestamp != nil {
		return is(discoveryv1alpha1.StatusDisconnecting, discoveryv1alpha1.ReasonResourceRequestDeleting, "waiting for "+waitsFor(f.Slice))
	}
	node := meta.FindStatusCondition(f.Slice.Status.Conditions, sharingv1alpha1.ConditionNodeReady)
	switch f.Slice.Status.Phase {
	case sharingv1alpha1.SliceRefused:
		return is(discoveryv1alpha1.StatusDenied, discoveryv1alpha1.ReasonResourceRequestRefused, granted(f.Slice, "the remote cluster does not share with this one"))
	case sharingv1alpha1.SliceAccepted:
		if node == nil {
			return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonKubeletPending, "resources are granted, the virtual kubelet is not there yet")
		}
		message := "resources are granted, the virtual kubelet of node " + f.Slice.Spec.NodeName + " is in place"
		if node.Status != metav1.ConditionTrue {
			message += "; the node: " + node.Message
		}
		if meta.IsStatusConditionFalse(f.Slice.Status.Conditions, sharingv1alpha1.ConditionGranted) {
			message += "; " + granted(f.Slice, "the remote cluster takes no further pods")
		}
		return is(discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.ReasonResourceRequestAccepted, message)
	case sharingv1alpha1.SlicePending, sharingv1alpha1.SliceManualActionRequired:
	}
	return is(
		discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonResourceRequestPending,
		granted(f.Slice, "the remote cluster has not answered the request for resources yet"),
	)
}

// waitsFor names what a request that is being deleted waits for, from its finalizers.
func waitsFor(slice *sharingv1alpha1.ResourceSlice) string {
	switch {
	case slices.Contains(slice.Finalizers, labels.FinalizerNode):
		return "node " + slice.Spec.NodeName + " to be drained and removed"
	case slices.Contains(slice.Finalizers, labels.FinalizerReplication):
		return "the remote cluster to remove its copy of the request"
	default:
		return "the API server to remove the request"
	}
}

func granted(slice *sharingv1alpha1.ResourceSlice, otherwise string) string {
	if condition := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionGranted); condition != nil && condition.Message != "" {
		return condition.Message
	}
	return otherwise
}

func (f *Facts) incomingPeering() discoveryv1alpha1.PeeringCondition {
	is := func(status discoveryv1alpha1.PeeringConditionStatus, reason, message string) discoveryv1alpha1.PeeringCondition {
		return condition(discoveryv1alpha1.IncomingPeering, status, reason, message)
	}
	best := is(discoveryv1alpha1.StatusNone, discoveryv1alpha1.ReasonNoResourceRequest, "the remote cluster asks for no resources")
	for i := range f.Copies {
		slice := &f.Copies[i]
		switch {
		case slice.DeletionTimestamp != nil:
			if best.Status == discoveryv1alpha1.StatusNone {
				best = is(discoveryv1alpha1.StatusDisconnecting, discoveryv1alpha1.ReasonResourceRequestDeleting, "the remote cluster withdraws its request for resources")
			}
		case slice.Status.Phase == sharingv1alpha1.SliceAccepted:
			return is(discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.ReasonResourceRequestAccepted, "the remote cluster may use resources of this one")
		case slice.Status.Phase == sharingv1alpha1.SliceRefused:
			best = is(discoveryv1alpha1.StatusDenied, discoveryv1alpha1.ReasonResourceRequestRefused, granted(slice, "this cluster does not share with the remote one"))
		default:
			best = is(
				discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonResourceRequestPending,
				granted(slice, "the remote cluster's request for resources is not answered yet"),
			)
		}
	}
	if f.Incoming != nil && (f.Admitted || len(f.Copies) > 0) {
		switch f.Incoming.State {
		case discoveryv1alpha1.IncomingWaiting:
			return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonIncomingWaiting,
				"the remote cluster wants to use this one; set spec.incomingPeeringEnabled to Yes or No")
		case discoveryv1alpha1.IncomingWithdrawing:
			return is(discoveryv1alpha1.StatusDisconnecting, discoveryv1alpha1.ReasonIncomingWithdrawing,
				fmt.Sprintf("the remote cluster may not use this one any more; pods that it does not take away by %s are deleted",
					f.Incoming.Since.Add(admission.WithdrawDeadline).UTC().Format(time.RFC3339)))
		case discoveryv1alpha1.IncomingRefused:
			return is(discoveryv1alpha1.StatusDenied, discoveryv1alpha1.ReasonIncomingRefused, "this cluster does not let the remote one use it")
		case discoveryv1alpha1.IncomingAccepted:
		}
	}
	return best
}

func (f *Facts) network() discoveryv1alpha1.PeeringCondition {
	is := func(status discoveryv1alpha1.PeeringConditionStatus, reason, message string) discoveryv1alpha1.PeeringCondition {
		return condition(discoveryv1alpha1.NetworkStatus, status, reason, message)
	}
	if !f.InternalNetwork {
		message := "the networks of the clusters are joined by other means, or not at all"
		if f.Spec == nil || f.Spec.Network == nil || len(f.Spec.Network.PodCIDRs) == 0 {
			message += "; spec.network.podCIDRs lists no network of the remote cluster, so no address of its pods and endpoints is used here"
		}
		return is(discoveryv1alpha1.StatusExternal, discoveryv1alpha1.ReasonExternalNetwork, message)
	}
	if f.Tunnel == nil {
		return is(discoveryv1alpha1.StatusNone, discoveryv1alpha1.ReasonTunnelEndpointNotFound, "no tunnel to the remote cluster is agreed: "+f.noTunnel())
	}
	message := func(otherwise string) string {
		if reported := f.Tunnel.Status.Connection.StatusMessage; reported != "" {
			return reported
		}
		return otherwise
	}
	switch f.Tunnel.Status.Connection.Status {
	case netv1alpha1.Connected:
		return is(discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.ReasonTunnelEndpointAvailable, message("the tunnel to the remote cluster is up"))
	case netv1alpha1.ConnectionError:
		return is(discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonTunnelEndpointError, message("the tunnel to the remote cluster does not work"))
	case netv1alpha1.Connecting:
	}
	return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonTunnelEndpointConnecting, message("the gateways have not reported on the tunnel yet"))
}

// noTunnel explains why there is no tunnel.
func (f *Facts) noTunnel() string {
	refusal := func(config *netv1alpha1.NetworkConfig, kind string) (message string) {
		if config == nil {
			return ""
		}
		if found := meta.FindStatusCondition(config.Status.Conditions, kind); found != nil && found.Status == metav1.ConditionFalse {
			return found.Message
		}
		return ""
	}
	unpublished := refusal(f.OurNetwork, netv1alpha1.ConditionPublished)
	switch here, there := refusal(f.PeerNetwork, netv1alpha1.ConditionReady), refusal(f.OurNetwork, netv1alpha1.ConditionReady); {
	case here != "":
		return "this cluster does not accept the network of the remote one: " + here
	case there != "" && unpublished != "":
		return unpublished // it repeats that, and changes less often than the peer may
	case there != "":
		return "the remote cluster does not accept the network of this one: " + there
	case !f.Outgoing && f.Slice == nil && len(f.Copies) == 0:
		return "no peering is wanted"
	case f.OurNetwork == nil:
		return "this cluster has not described its network yet"
	case f.PeerNetwork == nil:
		return "the remote cluster has not described its network yet; it must use the network fabric of Liqo (Helm value networking.internal)"
	case unpublished != "":
		return unpublished
	case !f.OurNetwork.Status.Processed:
		return "the remote cluster has not answered the network configuration of this one yet"
	case !f.PeerNetwork.Status.Processed:
		return "this cluster has not processed the network configuration of the remote one yet"
	}
	return "both networks are known, the tunnel is being created"
}

func (f *Facts) apiServer() discoveryv1alpha1.PeeringCondition {
	is := func(status discoveryv1alpha1.PeeringConditionStatus, reason, message string) discoveryv1alpha1.PeeringCondition {
		return condition(discoveryv1alpha1.APIServerStatus, status, reason, message)
	}
	switch {
	case f.Connected && f.Ready && f.ConnectionMessage == "":
		return is(discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.ReasonAPIServerReady, "the remote API server answers")
	case f.Connected && !f.Probed:
		return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonAPIServerNotReady, "the first probe of the remote API server is under way")
	case f.Connected:
		return is(discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonAPIServerNotReady, f.ConnectionMessage)
	default:
		return is(
			discoveryv1alpha1.StatusNone, discoveryv1alpha1.ReasonAPIServerNotNeeded,
			"there is no connection to the remote API server, because this cluster has no identity there",
		)
	}
}

func (f *Facts) authentication() discoveryv1alpha1.PeeringCondition {
	is := func(status discoveryv1alpha1.PeeringConditionStatus, reason, message string) discoveryv1alpha1.PeeringCondition {
		return condition(discoveryv1alpha1.AuthenticationStatus, status, reason, message)
	}
	switch f.Identity {
	case IdentityAccepted:
		message := "the remote cluster accepts the identity of this one"
		if f.RenewedInside != "" {
			message += ", which was renewed through the tunnel: " + f.RenewedInside
		}
		return is(discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.ReasonIdentityAccepted, message)
	case IdentityPending:
		return is(discoveryv1alpha1.StatusPending, discoveryv1alpha1.ReasonIdentityPending, f.IdentityMessage)
	case IdentityEmptyDenied:
		return is(discoveryv1alpha1.StatusEmptyDenied, discoveryv1alpha1.ReasonIdentityEmptyDenied, f.IdentityMessage)
	case IdentityDenied:
		return is(discoveryv1alpha1.StatusDenied, discoveryv1alpha1.ReasonIdentityDenied, f.IdentityMessage)
	case IdentityUnproven:
		return is(discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonProviderUnproven, f.IdentityMessage)
	case IdentityUnreachable:
		return is(discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonAuthNotReachable, f.IdentityMessage)
	case IdentityVersion:
		return is(discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonVersionMismatch, f.IdentityMessage)
	case IdentityError:
		return is(discoveryv1alpha1.StatusError, discoveryv1alpha1.ReasonIdentityError, f.IdentityMessage)
	case IdentityNotNeeded:
	}
	if f.Admitted {
		return is(
			discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.ReasonIdentityAccepted,
			"this cluster accepts the identity of the remote one, and needs no identity there",
		)
	}
	return is(discoveryv1alpha1.StatusNone, discoveryv1alpha1.ReasonIdentityNotNeeded, "no peering is wanted, so no identity is needed")
}

func (f *Facts) processing() discoveryv1alpha1.PeeringCondition {
	if f.Problem != nil {
		return condition(discoveryv1alpha1.ProcessForeignClusterStatus, discoveryv1alpha1.StatusError, f.Problem.Reason, f.Problem.message)
	}
	return condition(discoveryv1alpha1.ProcessForeignClusterStatus, discoveryv1alpha1.StatusSuccess,
		discoveryv1alpha1.ReasonForeignClusterProcessable, "the ForeignCluster can be processed")
}

// Stamp sets the transition time of each condition: at if its status changed, else the time before.
func Stamp(before, now []discoveryv1alpha1.PeeringCondition, at time.Time) {
	for i := range now {
		now[i].LastTransitionTime = metav1.NewTime(at).Rfc3339Copy()
		for _, old := range before {
			if old.Type == now[i].Type && old.Status == now[i].Status && !old.LastTransitionTime.IsZero() {
				now[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
}
