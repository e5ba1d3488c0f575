// SPDX-License-Identifier: Apache-2.0

package foreigncluster

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
	repeated.Status.Conditions = append(repeated.Status.Conditions, metav1.Condition{Type: netv1alpha1.ConditionPublished, Status: metav1.ConditionFalse, Message: "the peer refuses this cluster's network: no capacity"})
	for _, c := range []struct {
		name  string
		facts fcFacts
		kind  discoveryv1alpha1.PeeringConditionType
		want  string // status, reason, and words of the message
	}{
		{"nothing wanted", fcFacts{}, out, "None NoResourceRequest"},
		{"wanted, not written", fcFacts{outgoing: true}, out, "Pending ResourceRequestPending"},
		{"not answered", fcFacts{slice: slice(pending)}, out, "Pending ResourceRequestPending"},
		{"answered, no kubelet", fcFacts{slice: slice(accepted)}, out, "Pending KubeletPending"},
		{"accepted", fcFacts{slice: slice(accepted, nodeReady)}, out, "Established ResourceRequestAccepted"},
		{"node not ready", fcFacts{slice: slice(accepted, nodeNotReady)}, out, "Established ResourceRequestAccepted no answer"},
		{"in maintenance", fcFacts{slice: slice(accepted, nodeReady, notGranted)}, out, "Established ResourceRequestAccepted not for you"},
		{"refused", fcFacts{slice: slice(refused, notGranted)}, out, "Denied ResourceRequestRefused not for you"},
		{"draining", fcFacts{slice: deleting(slice(accepted), labels.FinalizerNode, labels.FinalizerReplication)}, out, "Disconnecting ResourceRequestDeleting liqo-milan"},
		{"copy left", fcFacts{slice: deleting(slice(accepted), labels.FinalizerReplication)}, out, "Disconnecting ResourceRequestDeleting copy"},
		{"no incoming", fcFacts{}, in, "None NoResourceRequest"},
		{"incoming not answered", fcFacts{copies: copies(slice(pending))}, in, "Pending ResourceRequestPending"},
		{"incoming", fcFacts{copies: copies(slice(pending), slice(accepted))}, in, "Established ResourceRequestAccepted"},
		{"incoming refused", fcFacts{copies: copies(slice(refused, notGranted))}, in, "Denied ResourceRequestRefused not for you"},
		{"incoming ends", fcFacts{copies: copies(deleting(slice(accepted), labels.FinalizerGrant))}, in, "Disconnecting ResourceRequestDeleting"},
		{"external network", fcFacts{}, network, "External ExternalNetwork spec.network.podCIDRs lists no network"},
		{"external network, written down", fcFacts{spec: external}, network, "External ExternalNetwork or not at all"},
		{"no peering, no tunnel", fcFacts{internalNetwork: true}, network, "None TunnelEndpointNotFound no peering is wanted"},
		{"our network is not described", fcFacts{internalNetwork: true, outgoing: true}, network, "None TunnelEndpointNotFound this cluster has not described"},
		{"the peer's network is not described", fcFacts{internalNetwork: true, copies: copies(slice(accepted)), ourNetwork: described(true, "")}, network, "None TunnelEndpointNotFound the remote cluster has not described"},
		{"not answered there", fcFacts{internalNetwork: true, outgoing: true, ourNetwork: described(false, ""), peerNetwork: described(true, "")}, network, "None TunnelEndpointNotFound the remote cluster has not answered"},
		{"not answered here", fcFacts{internalNetwork: true, outgoing: true, ourNetwork: described(true, ""), peerNetwork: described(false, "")}, network, "None TunnelEndpointNotFound this cluster has not processed"},
		{"refused here", fcFacts{internalNetwork: true, outgoing: true, peerNetwork: described(true, "too large")}, network, "None TunnelEndpointNotFound this cluster does not accept the network of the remote one: too large"},
		{"refused there", fcFacts{internalNetwork: true, outgoing: true, ourNetwork: described(true, "no capacity"), peerNetwork: described(true, "")}, network, "None TunnelEndpointNotFound the remote cluster does not accept the network of this one: no capacity"},
		{"refused there, and reported", fcFacts{internalNetwork: true, outgoing: true, ourNetwork: repeated, peerNetwork: described(true, "")}, network, "None TunnelEndpointNotFound the peer refuses this cluster's network: no capacity"},
		{"not published", fcFacts{internalNetwork: true, outgoing: true, ourNetwork: unpublished, peerNetwork: described(true, "")}, network, "None TunnelEndpointNotFound there is no gateway"},
		{"agreed, no tunnel yet", fcFacts{internalNetwork: true, outgoing: true, ourNetwork: described(true, ""), peerNetwork: described(true, "")}, network, "None TunnelEndpointNotFound being created"},
		{"tunnel not reported", fcFacts{internalNetwork: true, tunnel: tunnel("", "")}, network, "Pending TunnelEndpointConnecting not reported"},
		{"tunnel comes up", fcFacts{internalNetwork: true, tunnel: tunnel(netv1alpha1.Connecting, "no handshake yet")}, network, "Pending TunnelEndpointConnecting no handshake yet"},
		{"tunnel", fcFacts{internalNetwork: true, tunnel: tunnel(netv1alpha1.Connected, "")}, network, "Established TunnelEndpointAvailable is up"},
		{"tunnel fails", fcFacts{internalNetwork: true, tunnel: tunnel(netv1alpha1.ConnectionError, "3 of 3 probes lost")}, network, "Error TunnelEndpointError 3 of 3 probes lost"},
		{"no connection", fcFacts{}, api, "None APIServerNotNeeded"},
		{"connection ready", fcFacts{connected: true, probed: true, ready: true}, api, "Established APIServerReady"},
		{"connection not probed yet", fcFacts{connected: true, connectionMessage: "under way"}, api, "Pending APIServerNotReady"},
		{"connection fails", fcFacts{connected: true, probed: true, connectionMessage: "timeout"}, api, "Error APIServerNotReady timeout"},
		{"connection without read access", fcFacts{connected: true, probed: true, ready: true, connectionMessage: "forbidden"}, api, "Error APIServerNotReady forbidden"},
		{"no identity needed", fcFacts{}, authn, "None IdentityNotNeeded"},
		{"peer admitted", fcFacts{admitted: true}, authn, "Established IdentityAccepted"},
		{"accepted", fcFacts{identity: identityAccepted}, authn, "Established IdentityAccepted"},
		{"under way", fcFacts{identity: identityPending, identityMessage: "m"}, authn, "Pending IdentityPending m"},
		{"empty token", fcFacts{identity: identityEmptyDenied, identityMessage: "m", admitted: true}, authn, "EmptyDenied IdentityEmptyDenied m"},
		{"wrong token", fcFacts{identity: identityDenied, identityMessage: "m"}, authn, "Denied IdentityDenied m"},
		{"another service in its place", fcFacts{identity: identityUnproven, identityMessage: "m"}, authn, "Error ProviderUnproven m"},
		{"the service does not answer", fcFacts{identity: identityUnreachable, identityMessage: "m"}, authn, "Error AuthNotReachable m"},
		{"version", fcFacts{identity: identityVersion, identityMessage: "m"}, authn, "Error VersionMismatch m"},
		{"failure", fcFacts{identity: identityError, identityMessage: "m"}, authn, "Error IdentityError m"},
		{"processable", fcFacts{}, process, "Success ForeignClusterProcessable"},
		{"own ID", fcFacts{problem: newProblem(discoveryv1alpha1.ReasonLocalCluster, "m")}, process, "Error LocalCluster m"},
	} {
		all := fcConditions(&c.facts)
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
	stampConditions(old, all, now)
	if !all[0].LastTransitionTime.Equal(&before) || all[1].LastTransitionTime.Unix() != 2000 {
		t.Errorf("times %v", all)
	}
}

// TestProxyProblemDisownsNothing: a ForeignCluster that cannot reach its peer still has to delete its tenant.
func TestProxyProblemDisownsNothing(t *testing.T) {
	for reason, want := range map[string]bool{
		discoveryv1alpha1.ReasonInvalidProxyURL: false, discoveryv1alpha1.ReasonInBandNotSupported: false, discoveryv1alpha1.ReasonClusterIDRepetition: true, discoveryv1alpha1.ReasonLocalCluster: true,
	} {
		if have := (&problem{reason: reason}).disowns(); have != want {
			t.Errorf("%s: %t", reason, have)
		}
	}
	if (*problem)(nil).disowns() {
		t.Error("no problem disowns")
	}
}

// A reconciliation that fails reports that, and not what it has not observed.
func TestConditionsOfAFailure(t *testing.T) {
	facts := &fcFacts{spec: &discoveryv1alpha1.ForeignClusterSpec{}, outgoing: true, identity: identityAccepted, incoming: &discoveryv1alpha1.IncomingStatus{}}
	before := currentConditions(nil, facts)
	facts.identity, facts.failure = identityNotNeeded, errors.New("configmaps is forbidden")
	for _, c := range currentConditions(before, facts) {
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
	if now := currentConditions(nil, facts); len(now) != 1 {
		t.Errorf("the first reconciliation failed, and there is %+v", now)
	}
	facts.failure = apierrors.NewConflict(schema.GroupResource{}, "milan", nil)
	if now := currentConditions(before, facts); !slices.Equal(now, before) {
		t.Errorf("a conflict changes the status: %+v", now)
	}
}
