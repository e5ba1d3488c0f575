// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

func slice(phase sharingv1alpha1.SlicePhase, conditions ...metav1.Condition) *sharingv1alpha1.ResourceSlice {
	s := &sharingv1alpha1.ResourceSlice{}
	s.Spec.NodeName = "liqo-milan"
	s.Status.Phase, s.Status.Conditions = phase, conditions
	return s
}

func deleting(s *sharingv1alpha1.ResourceSlice, finalizers ...string) *sharingv1alpha1.ResourceSlice {
	now := metav1.Now()
	s.DeletionTimestamp, s.Finalizers = &now, finalizers
	return s
}

func described(processed bool, refusal string) *netv1alpha1.NetworkConfig {
	c := &netv1alpha1.NetworkConfig{Status: netv1alpha1.NetworkConfigStatus{Processed: processed}}
	ready := metav1.Condition{Type: netv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "assigned"}
	if refusal != "" {
		ready.Status, ready.Message = metav1.ConditionFalse, refusal
	}
	c.Status.Conditions = []metav1.Condition{ready}
	return c
}

func tunnel(status netv1alpha1.ConnectionStatus, message string) *netv1alpha1.TunnelEndpoint {
	return &netv1alpha1.TunnelEndpoint{Status: netv1alpha1.TunnelEndpointStatus{Connection: netv1alpha1.Connection{Status: status, StatusMessage: message}}}
}

// TestConditions holds every row of the documented table of conditions.
func TestConditions(t *testing.T) {
	nodeReady := metav1.Condition{Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionTrue}
	nodeNotReady := metav1.Condition{Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionFalse, Message: "no answer"}
	notGranted := metav1.Condition{Type: sharingv1alpha1.ConditionGranted, Status: metav1.ConditionFalse, Message: "not for you"}
	accepted, pending, refused := sharingv1alpha1.SliceAccepted, sharingv1alpha1.SlicePending, sharingv1alpha1.SliceRefused
	out, in, network := discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.IncomingPeering, discoveryv1alpha1.NetworkStatus
	api, authn, process := discoveryv1alpha1.APIServerStatus, discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.ProcessForeignClusterStatus
	external := &discoveryv1alpha1.ForeignClusterSpec{Network: &discoveryv1alpha1.PeerNetwork{PodCIDRs: []string{"10.1.0.0/16"}}}
	copies := func(all ...*sharingv1alpha1.ResourceSlice) (copies []sharingv1alpha1.ResourceSlice) {
		for _, one := range all {
			copies = append(copies, *one)
		}
		return copies
	}
	unpublished := described(false, "")
	unpublished.Status.Conditions = []metav1.Condition{{Type: netv1alpha1.ConditionPublished, Status: metav1.ConditionFalse, Message: "there is no gateway"}}
	repeated := described(false, "another reason each time")
	repeated.Status.Conditions = append(repeated.Status.Conditions, metav1.Condition{
		Type: netv1alpha1.ConditionPublished, Status: metav1.ConditionFalse, Message: "the peer refuses this cluster's network: no capacity",
	})
	for _, c := range []struct {
		name  string
		facts Facts
		kind  discoveryv1alpha1.PeeringConditionType
		want  string // status, reason, and words of the message
	}{
		{"nothing wanted", Facts{}, out, "None NoResourceRequest"},
		{"wanted, not written", Facts{Outgoing: true}, out, "Pending ResourceRequestPending"},
		{"not answered", Facts{Slice: slice(pending)}, out, "Pending ResourceRequestPending"},
		{"answered, no kubelet", Facts{Slice: slice(accepted)}, out, "Pending KubeletPending"},
		{"accepted", Facts{Slice: slice(accepted, nodeReady)}, out, "Established ResourceRequestAccepted"},
		{"node not ready", Facts{Slice: slice(accepted, nodeNotReady)}, out, "Established ResourceRequestAccepted no answer"},
		{"in maintenance", Facts{Slice: slice(accepted, nodeReady, notGranted)}, out, "Established ResourceRequestAccepted not for you"},
		{"refused", Facts{Slice: slice(refused, notGranted)}, out, "Denied ResourceRequestRefused not for you"},
		{
			"draining",
			Facts{Slice: deleting(slice(accepted), labels.FinalizerNode, labels.FinalizerReplication)},
			out,
			"Disconnecting ResourceRequestDeleting liqo-milan",
		},
		{"copy left", Facts{Slice: deleting(slice(accepted), labels.FinalizerReplication)}, out, "Disconnecting ResourceRequestDeleting copy"},
		{"no incoming", Facts{}, in, "None NoResourceRequest"},
		{"incoming not answered", Facts{Copies: copies(slice(pending))}, in, "Pending ResourceRequestPending"},
		{"incoming", Facts{Copies: copies(slice(pending), slice(accepted))}, in, "Established ResourceRequestAccepted"},
		{"incoming refused", Facts{Copies: copies(slice(refused, notGranted))}, in, "Denied ResourceRequestRefused not for you"},
		{"incoming ends", Facts{Copies: copies(deleting(slice(accepted), labels.FinalizerGrant))}, in, "Disconnecting ResourceRequestDeleting"},
		{"external network", Facts{}, network, "External ExternalNetwork spec.network.podCIDRs lists no network"},
		{"external network, written down", Facts{Spec: external}, network, "External ExternalNetwork or not at all"},
		{"no peering, no tunnel", Facts{InternalNetwork: true}, network, "None TunnelEndpointNotFound no peering is wanted"},
		{"our network is not described", Facts{InternalNetwork: true, Outgoing: true}, network, "None TunnelEndpointNotFound this cluster has not described"},
		{
			"the peer's network is not described",
			Facts{InternalNetwork: true, Copies: copies(slice(accepted)), OurNetwork: described(true, "")},
			network, "None TunnelEndpointNotFound the remote cluster has not described",
		},
		{
			"not answered there",
			Facts{InternalNetwork: true, Outgoing: true, OurNetwork: described(false, ""), PeerNetwork: described(true, "")},
			network, "None TunnelEndpointNotFound the remote cluster has not answered",
		},
		{
			"not answered here",
			Facts{InternalNetwork: true, Outgoing: true, OurNetwork: described(true, ""), PeerNetwork: described(false, "")},
			network, "None TunnelEndpointNotFound this cluster has not processed",
		},
		{
			"refused here",
			Facts{InternalNetwork: true, Outgoing: true, PeerNetwork: described(true, "too large")},
			network,
			"None TunnelEndpointNotFound this cluster does not accept the network of the remote one: too large",
		},
		{
			"refused there",
			Facts{InternalNetwork: true, Outgoing: true, OurNetwork: described(true, "no capacity"), PeerNetwork: described(true, "")},
			network,
			"None TunnelEndpointNotFound the remote cluster does not accept the network of this one: no capacity",
		},
		{
			"refused there, and reported",
			Facts{InternalNetwork: true, Outgoing: true, OurNetwork: repeated, PeerNetwork: described(true, "")},
			network, "None TunnelEndpointNotFound the peer refuses this cluster's network: no capacity",
		},
		{
			"not published",
			Facts{InternalNetwork: true, Outgoing: true, OurNetwork: unpublished, PeerNetwork: described(true, "")},
			network,
			"None TunnelEndpointNotFound there is no gateway",
		},
		{
			"agreed, no tunnel yet",
			Facts{InternalNetwork: true, Outgoing: true, OurNetwork: described(true, ""), PeerNetwork: described(true, "")},
			network,
			"None TunnelEndpointNotFound being created",
		},
		{"tunnel not reported", Facts{InternalNetwork: true, Tunnel: tunnel("", "")}, network, "Pending TunnelEndpointConnecting not reported"},
		{
			"tunnel comes up",
			Facts{InternalNetwork: true, Tunnel: tunnel(netv1alpha1.Connecting, "no handshake yet")},
			network,
			"Pending TunnelEndpointConnecting no handshake yet",
		},
		{"tunnel", Facts{InternalNetwork: true, Tunnel: tunnel(netv1alpha1.Connected, "")}, network, "Established TunnelEndpointAvailable is up"},
		{
			"tunnel fails",
			Facts{InternalNetwork: true, Tunnel: tunnel(netv1alpha1.ConnectionError, "3 of 3 probes lost")},
			network,
			"Error TunnelEndpointError 3 of 3 probes lost",
		},
		{"no connection", Facts{}, api, "None APIServerNotNeeded"},
		{"connection ready", Facts{Connected: true, Probed: true, Ready: true}, api, "Established APIServerReady"},
		{"connection not probed yet", Facts{Connected: true, ConnectionMessage: "under way"}, api, "Pending APIServerNotReady"},
		{"connection fails", Facts{Connected: true, Probed: true, ConnectionMessage: "timeout"}, api, "Error APIServerNotReady timeout"},
		{
			"connection without read access",
			Facts{Connected: true, Probed: true, Ready: true, ConnectionMessage: "forbidden"},
			api,
			"Error APIServerNotReady forbidden",
		},
		{"no identity needed", Facts{}, authn, "None IdentityNotNeeded"},
		{"peer admitted", Facts{Admitted: true}, authn, "Established IdentityAccepted"},
		{"accepted", Facts{Identity: IdentityAccepted}, authn, "Established IdentityAccepted"},
		{"under way", Facts{Identity: IdentityPending, IdentityMessage: "m"}, authn, "Pending IdentityPending m"},
		{"empty token", Facts{Identity: IdentityEmptyDenied, IdentityMessage: "m", Admitted: true}, authn, "EmptyDenied IdentityEmptyDenied m"},
		{"wrong token", Facts{Identity: IdentityDenied, IdentityMessage: "m"}, authn, "Denied IdentityDenied m"},
		{"another service in its place", Facts{Identity: IdentityUnproven, IdentityMessage: "m"}, authn, "Error ProviderUnproven m"},
		{"the service does not answer", Facts{Identity: IdentityUnreachable, IdentityMessage: "m"}, authn, "Error AuthNotReachable m"},
		{"version", Facts{Identity: IdentityVersion, IdentityMessage: "m"}, authn, "Error VersionMismatch m"},
		{"failure", Facts{Identity: IdentityError, IdentityMessage: "m"}, authn, "Error IdentityError m"},
		{"processable", Facts{}, process, "Success ForeignClusterProcessable"},
		{"own ID", Facts{Problem: NewProblem(discoveryv1alpha1.ReasonLocalCluster, "m")}, process, "Error LocalCluster m"},
	} {
		all := all(&c.facts)
		if len(all) != 6 {
			t.Fatalf("%s: %d conditions", c.name, len(all))
		}
		for _, condition := range all {
			if condition.Message == "" || condition.Reason == "" {
				t.Errorf("%s: %s has no reason or no message", c.name, condition.Type)
			}
			if condition.Type != c.kind {
				continue
			}
			want := strings.SplitN(c.want, " ", 3)
			if string(condition.Status) != want[0] || condition.Reason != want[1] || len(want) > 2 && !strings.Contains(condition.Message, want[2]) {
				t.Errorf("%s: %s %s %q, want %s", c.name, condition.Status, condition.Reason, condition.Message, c.want)
			}
		}
	}
}

func TestStampConditions(t *testing.T) {
	before, now := metav1.NewTime(time.Unix(1000, 0)), time.Unix(2000, 0)
	old := []discoveryv1alpha1.PeeringCondition{{Type: discoveryv1alpha1.OutgoingPeering, Status: discoveryv1alpha1.StatusNone, LastTransitionTime: before}}
	all := []discoveryv1alpha1.PeeringCondition{
		{Type: discoveryv1alpha1.OutgoingPeering, Status: discoveryv1alpha1.StatusNone, Message: "other words"},
		{Type: discoveryv1alpha1.IncomingPeering, Status: discoveryv1alpha1.StatusNone},
	}
	Stamp(old, all, now)
	if !all[0].LastTransitionTime.Equal(&before) || all[1].LastTransitionTime.Unix() != 2000 {
		t.Errorf("times %v", all)
	}
}

// TestProxyProblemDisownsNothing: a ForeignCluster that cannot reach its peer still has to delete its tenant.
func TestProxyProblemDisownsNothing(t *testing.T) {
	for reason, want := range map[string]bool{
		discoveryv1alpha1.ReasonInvalidProxyURL: false, discoveryv1alpha1.ReasonInBandNotSupported: false,
		discoveryv1alpha1.ReasonClusterIDRepetition: true, discoveryv1alpha1.ReasonLocalCluster: true,
	} {
		if have := (&Problem{Reason: reason}).Disowns(); have != want {
			t.Errorf("%s: %t", reason, have)
		}
	}
	if (*Problem)(nil).Disowns() {
		t.Error("no problem disowns")
	}
}

// A reconciliation that fails reports that, and not what it has not observed.
func TestConditionsOfAFailure(t *testing.T) {
	facts := &Facts{Spec: &discoveryv1alpha1.ForeignClusterSpec{}, Outgoing: true, Identity: IdentityAccepted, Incoming: &discoveryv1alpha1.IncomingStatus{}}
	before := Current(nil, facts)
	facts.Identity, facts.Failure = IdentityNotNeeded, errors.New("configmaps is forbidden")
	for _, c := range Current(before, facts) {
		was := before[slices.IndexFunc(before, func(one discoveryv1alpha1.PeeringCondition) bool { return one.Type == c.Type })]
		switch {
		case c.Type != discoveryv1alpha1.ProcessForeignClusterStatus:
			if c != was {
				t.Errorf("%+v was %+v", c, was)
			}
		case c.Status != discoveryv1alpha1.StatusError || !strings.Contains(c.Message, "configmaps is forbidden"):
			t.Errorf("%+v", c)
		}
	}
	if now := Current(nil, facts); len(now) != 1 {
		t.Errorf("the first reconciliation failed, and there is %+v", now)
	}
	facts.Failure = apierrors.NewConflict(schema.GroupResource{}, "milan", nil)
	if now := Current(before, facts); !slices.Equal(now, before) {
		t.Errorf("a conflict changes the status: %+v", now)
	}
}
