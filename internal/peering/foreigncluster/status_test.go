// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/replicate"
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
		{"own ID", fcFacts{problem: &problem{discoveryv1alpha1.ReasonLocalCluster, "m"}}, process, "Error LocalCluster m"},
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

func TestWantsOutgoing(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		enabled  discoveryv1alpha1.PeeringEnabled
		kind     string
		autoJoin bool
		deleted  bool
		want     bool
	}{
		{discoveryv1alpha1.PeeringYes, labels.DiscoveryManual, false, false, true},
		{discoveryv1alpha1.PeeringYes, labels.DiscoveryManual, true, true, false},
		{discoveryv1alpha1.PeeringNo, labels.DiscoveryLAN, true, false, false},
		{discoveryv1alpha1.PeeringAuto, labels.DiscoveryLAN, true, false, true},
		{discoveryv1alpha1.PeeringAuto, labels.DiscoveryLAN, false, false, false},
		{discoveryv1alpha1.PeeringAuto, labels.DiscoveryIncoming, true, false, false},
	} {
		fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.DiscoveryType: c.kind}}}
		fc.Spec.OutgoingPeeringEnabled = c.enabled
		if c.deleted {
			fc.DeletionTimestamp = &now
		}
		if have := wantsOutgoing(fc, c.autoJoin); have != c.want {
			t.Errorf("%+v: %t", c, have)
		}
	}
}

func TestCheckPeer(t *testing.T) {
	fc := func(name, id string, second int64) discoveryv1alpha1.ForeignCluster {
		fc := discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
		fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
		return fc
	}
	local := discoveryv1alpha1.ClusterIdentity{ClusterID: "me", ClusterName: "rome"}
	old, young, sameAge, other := fc("milan", "a", 1), fc("milano", "a", 2), fc("mailand", "a", 1), fc("turin", "b", 1)
	self := fc("self", "me", 1)
	all := []discoveryv1alpha1.ForeignCluster{old, young, sameAge, other}
	for _, c := range []struct {
		fc   discoveryv1alpha1.ForeignCluster
		want string
	}{
		{old, discoveryv1alpha1.ReasonClusterIDRepetition}, // mailand is as old, and first by name
		{young, discoveryv1alpha1.ReasonClusterIDRepetition},
		{sameAge, ""},
		{other, ""},
		{self, discoveryv1alpha1.ReasonLocalCluster},
	} {
		have := checkPeer(&c.fc, local, all)
		if c.want == "" != (have == nil) || have != nil && have.reason != c.want {
			t.Errorf("%s: %v, want %q", c.fc.Name, have, c.want)
		}
	}
}

func TestNodeName(t *testing.T) {
	milan := discoveryv1alpha1.ClusterIdentity{ClusterID: "a", ClusterName: "milan"}
	node := func(id string) []corev1.Node {
		return []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{labels.RemoteClusterID: id}}}}
	}
	request := func(id string) []sharingv1alpha1.ResourceSlice {
		s := slice("")
		s.Spec.ProviderClusterID = id
		return []sharingv1alpha1.ResourceSlice{*s}
	}
	if have := nodeNameFor(milan, "liqo-tenant-mailand-000000", nil, nil); have != "liqo-mailand-000000" {
		t.Errorf("in the namespace of an earlier name: %s", have)
	}
	for _, c := range []struct {
		nodes  []corev1.Node
		slices []sharingv1alpha1.ResourceSlice
		want   string
	}{
		{nil, nil, "liqo-milan"},
		{node("a"), request("a"), "liqo-milan"},
		{node("b"), nil, "liqo-" + milan.UniqueName()},
		{node(""), nil, "liqo-" + milan.UniqueName()},
		{nil, request("b"), "liqo-" + milan.UniqueName()},
	} {
		if have := nodeNameFor(milan, milan.TenantNamespace(), c.nodes, c.slices); have != c.want {
			t.Errorf("%v %v: %s, want %s", c.nodes, c.slices, have, c.want)
		}
	}
}

func TestClassify(t *testing.T) {
	fc := &discoveryv1alpha1.ForeignCluster{}
	fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: "a"}
	for _, c := range []struct {
		err  error
		want identityState
	}{
		{&auth.Error{Code: 401, Reason: auth.ReasonEmptyDenied}, identityEmptyDenied},
		{&auth.Error{Code: 401, Reason: auth.ReasonDenied}, identityDenied},
		{&auth.Error{Code: 403, Reason: auth.ReasonConflict}, identityDenied},
		{&auth.Error{Reason: auth.ReasonUnproven, Message: "m"}, identityUnproven},
		{&auth.Error{Code: 400, Reason: auth.ReasonVersion, Message: "m"}, identityVersion},
		{&auth.Error{Code: 429, Reason: auth.ReasonTooMany}, identityError},
		{&auth.Error{Reason: auth.ReasonUnreachable}, identityUnreachable},
		{context.DeadlineExceeded, identityUnreachable},
		{&auth.Error{Code: 503, Reason: auth.ReasonUnavailable}, identityError},
		{errors.New("else"), identityError},
	} {
		if have, message := classify(c.err, fc); have != c.want || message == "" {
			t.Errorf("%v: %d %q, want %d", c.err, have, message, c.want)
		}
	}
	for failures := range 20 {
		for _, state := range []identityState{identityDenied, identityUnreachable} {
			if wait := nextAttempt(state, failures, 0); wait < time.Second || wait > 5*time.Minute {
				t.Errorf("state %d, failure %d: next attempt in %v", state, failures, wait)
			}
		}
	}
	if wait := nextAttempt(identityError, 3, 7*time.Second); wait != 7*time.Second {
		t.Errorf("Retry-After of 7 s: next attempt in %v", wait)
	}
}

func TestRenewIn(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		renewAt time.Duration
		state   replicate.State
		want    time.Duration
	}{
		"half life is to come":                {10 * time.Minute, replicate.State{Connected: true, Ready: true}, 10 * time.Minute},
		"half life":                           {0, replicate.State{Connected: true, Ready: true}, 0},
		"past half life":                      {-time.Minute, replicate.State{Connected: true, Ready: true}, 0},
		"the token is refused":                {10 * time.Minute, replicate.State{Connected: true, Unauthorized: true, Since: now}, 0},
		"silent for a moment":                 {10 * time.Minute, replicate.State{Connected: true, Since: now.Add(-10 * time.Second)}, 20 * time.Second},
		"silent for long: it may have moved":  {10 * time.Minute, replicate.State{Connected: true, Since: now.Add(-time.Minute)}, 0},
		"not connected yet":                   {10 * time.Minute, replicate.State{}, 10 * time.Minute},
		"silent, and half life is to be soon": {5 * time.Second, replicate.State{Connected: true, Since: now}, 5 * time.Second},
	} {
		if have := renewIn(now.Add(c.renewAt), c.state, now); have != c.want {
			t.Errorf("%s: %v, want %v", name, have, c.want)
		}
	}
}

func TestUnusedSince(t *testing.T) {
	made, ended := time.Unix(100, 0), time.Unix(200, 0)
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
	if have := unusedSince(fc); !have.Equal(made) {
		t.Errorf("without conditions: %v", have)
	}
	fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
		{Type: discoveryv1alpha1.OutgoingPeering, LastTransitionTime: metav1.Unix(300, 0)},
		{Type: discoveryv1alpha1.IncomingPeering, LastTransitionTime: metav1.NewTime(ended)},
	}
	if have := unusedSince(fc); !have.Equal(ended) {
		t.Errorf("after the last request: %v", have)
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
