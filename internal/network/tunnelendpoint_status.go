// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/report"
)

const (
	// lostGrace is how long a connection that was there may be away before it is called an error.
	lostGrace = 4 * time.Second
	// latencyRest is how long a latency that was written stays.
	latencyRest = 10 * time.Minute
	// maxNames bounds how many nodes a message names.
	maxNames = 5
)

// tunnelFacts are what the status of a TunnelEndpoint is made of.
type tunnelFacts struct {
	tunnel *netv1alpha1.TunnelEndpoint
	// lanes of this cluster: those that have a Service.
	lanes []int
	// heard is what the gateway of each lane said last.
	heard map[int]heard
	// ready are the names of the nodes that are Ready.
	ready []string
	// refused is why what the peer claims now is not used; the spec is what was agreed before.
	refused *refusal
	// badSince is when the connection was first seen to be worse than what is written, zero if it was not at the last look.
	badSince time.Time
	// lost are the nodes that did not reach the peer at the last look: a gateway that is new has never heard them.
	lost []string
	now  time.Time
	// namespace of the gateways, for advice.
	namespace string
}

// leg is how one lane stands.
type leg struct {
	lane    int
	address string // of the gateway pod
	peer    *report.Peer
	up      bool
	// reason and message say why it is not up.
	reason, message string
	// alive is when it last was seen to work, as far as that is known.
	alive time.Time
}

// tunnelStatus is the whole status. badSince is for the next look; again says when that must be at the latest, 0 for never.
func tunnelStatus(f *tunnelFacts) (status netv1alpha1.TunnelEndpointStatus, badSince time.Time, again time.Duration) {
	old := &f.tunnel.Status
	status = *old.DeepCopy()
	status.ObservedGeneration = f.tunnel.Generation
	f.setReady(&status)

	legs := f.legs()
	cut, deaf := f.cutOff(), f.deaf()
	reason, message := judge(legs, cut, deaf, f.namespace)
	if working := slices.IndexFunc(legs, func(l leg) bool { return l.up }); working >= 0 {
		describe(&status, f.tunnel, legs, working, f.now)
	}
	reaching := len(f.ready) - len(cut) - len(deaf)
	now := howWell(reason, reaching, len(f.ready))
	if was := written(old); now < was {
		if badSince = f.badSince; badSince.IsZero() {
			badSince = f.now
		}
		// A loss of all lanes began before it was noticed.
		if alive := lastAlive(legs); !alive.IsZero() && alive.Before(badSince) {
			badSince = alive
		}
		if left := badSince.Add(lostGrace).Sub(f.now); left > 0 {
			return status, badSince, left // perhaps it comes back: what was said stands
		}
	}
	switch was := old.Connection.Status; {
	case now == whole:
		if missing := f.unheard(); len(missing) > 0 {
			reason, message = netv1alpha1.ReasonDegraded, message+"; not heard by any gateway: "+names("node", missing)
		}
		status.Connection.Status = netv1alpha1.Connected
	case was != netv1alpha1.Connected && was != netv1alpha1.ConnectionError:
		status.Connection.Status = netv1alpha1.Connecting
	default:
		status.Connection.Status = netv1alpha1.ConnectionError
	}
	status.Connection.StatusMessage = message
	f.set(&status.Conditions, netv1alpha1.ConditionConnected, now == whole, reason, message)
	if reason == netv1alpha1.ReasonNodesCutOff {
		message = fmt.Sprintf("%d of %d nodes that are Ready reach the peer", reaching, len(f.ready))
	}
	f.set(&status.Conditions, netv1alpha1.ConditionUsable, now > none, reason, message)
	return status, badSince, 0
}

func (f *tunnelFacts) set(conditions *[]metav1.Condition, kind string, is bool, reason, message string) {
	state := metav1.ConditionFalse
	if is {
		state = metav1.ConditionTrue
	}
	now := metav1.NewTime(f.now).Rfc3339Copy()
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: state, Reason: reason, Message: message, ObservedGeneration: f.tunnel.Generation, LastTransitionTime: now,
	})
}

func (f *tunnelFacts) setReady(status *netv1alpha1.TunnelEndpointStatus) {
	if f.refused != nil {
		f.set(&status.Conditions, netv1alpha1.ConditionReady, false, f.refused.reason, f.refused.message+"; what was agreed before stays in use")
		return
	}
	spec := &f.tunnel.Spec
	message := fmt.Sprintf("the peer's pods are seen as %s, its other addresses as %s", seen(spec.RemotePodCIDR, spec.RemoteNATPodCIDR), seen(spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR))
	f.set(&status.Conditions, netv1alpha1.ConditionReady, true, netv1alpha1.ReasonAgreed, message)
}

// seen is the network in whose place another one may stand.
func seen(own netv1alpha1.CIDR, nat string) string {
	if nat == "" || nat == netv1alpha1.NotRemapped {
		return string(own)
	}
	return nat
}

// legs are the lanes that both clusters have.
func (f *tunnelFacts) legs() (legs []leg) {
	for i := range f.tunnel.Spec.Lanes {
		if number := int(f.tunnel.Spec.Lanes[i].Number); slices.Contains(f.lanes, number) {
			legs = append(legs, f.leg(number))
		}
	}
	return legs
}

func (f *tunnelFacts) leg(number int) leg {
	h, ok := f.heard[number]
	l := leg{lane: number, address: h.address}
	says := func(reason, format string, values ...any) leg {
		l.reason, l.message = reason, fmt.Sprintf("lane %d: ", number)+fmt.Sprintf(format, values...)
		return l
	}
	if !ok {
		return says(netv1alpha1.ReasonGatewaySilent, "no gateway pod runs; see `kubectl -n %s get pods -l net.liqo.io/gateway=active`", f.namespace)
	}
	l.peer = h.peer(f.tunnel.Spec.ClusterIdentity.ClusterID)
	l.alive = alive(&h, l.peer)
	there := f.whereTo(number, l.peer)
	if h.silent {
		return says(netv1alpha1.ReasonGatewaySilent, "gateway pod %s at %s does not report; see `kubectl -n %s logs %[1]s`", h.pod, h.address, f.namespace)
	}
	if l.peer != nil && l.peer.Up {
		l.up = true
		return l
	}
	switch {
	case h.said.Error != "":
		return says(netv1alpha1.ReasonGatewayFailed, "gateway pod %s: %s", h.pod, short(h.said.Error))
	case l.peer == nil:
		return says(netv1alpha1.ReasonGatewayFailed, "gateway pod %s has not made the tunnel yet", h.pod)
	case l.peer.Problem != "":
		return says(netv1alpha1.ReasonGatewayFailed, "%s", short(l.peer.Problem))
	case handshakeState(l.peer) < 2 && l.peer.Endpoint == "":
		return says(netv1alpha1.ReasonNoHandshake, "the peer's gateway cannot be dialled, and has not dialled this one; if this one cannot be reached either, set annotation liqo.io/override-address on its Service")
	case handshakeState(l.peer) == 0:
		return says(netv1alpha1.ReasonNoHandshake, "no handshake with %s; UDP may be blocked between the clusters, or the peer's gateway is not there", there)
	case handshakeState(l.peer) == 1:
		return says(netv1alpha1.ReasonNoHandshake, "the last handshake with %s is older than %d s; UDP may be blocked between the clusters, or the peer's gateway is gone", there, staleHandshake)
	default:
		return says(netv1alpha1.ReasonProbesLost, "keys are agreed with %s, but probes do not come back; the peer's gateway may be gone, or not have processed this cluster's addresses", there)
	}
}

// whereTo is where the peer's gateway said it is. Which of its addresses is tried right now changes all the time, and would be written each time.
func (f *tunnelFacts) whereTo(number int, peer *report.Peer) string {
	var all []string
	for i := range f.tunnel.Spec.Lanes {
		lane := &f.tunnel.Spec.Lanes[i]
		for j := range lane.Carriers {
			for _, address := range lane.Carriers[j].Addresses {
				if int(lane.Number) == number && len(all) < maxNames {
					all = append(all, net.JoinHostPort(address, strconv.Itoa(int(lane.Carriers[j].Port))))
				}
			}
		}
	}
	if len(all) == 0 && peer != nil {
		return peer.Endpoint // it dials
	}
	return strings.Join(all, ", ")
}

// alive is when a lane last was seen to work.
func alive(h *heard, peer *report.Peer) time.Time {
	if h.at.IsZero() || peer == nil || peer.SilentMilliseconds < 0 {
		return time.Time{}
	}
	return h.at.Add(-time.Duration(peer.SilentMilliseconds) * time.Millisecond)
}

// lastAlive is when the last lane was seen to work; zero if one is up, or none ever was.
func lastAlive(legs []leg) (last time.Time) {
	for i := range legs {
		if legs[i].up {
			return time.Time{}
		}
		if legs[i].alive.After(last) {
			last = legs[i].alive
		}
	}
	return last
}

// judge says how the whole stands. cut are the nodes that no lane works for, deaf those that no gateway hears any more.
func judge(legs []leg, cut, deaf []string, namespace string) (reason, message string) {
	var up, down []string
	for i := range legs {
		if legs[i].up {
			up = append(up, strconv.Itoa(legs[i].lane))
			continue
		}
		if reason == "" {
			reason = legs[i].reason
		}
		down = append(down, legs[i].message)
	}
	switch {
	case len(legs) == 0:
		return netv1alpha1.ReasonNoCommonLane, "no lane has a gateway in both clusters; see `kubectl get services -A -l net.liqo.io/gateway` in both"
	case len(up) == 0:
		return reason, strings.Join(down, "; ")
	case len(cut)+len(deaf) > 0:
		var seen []string
		if len(cut) > 0 {
			seen = append(seen, "probes do not come back to "+names("node", cut))
		}
		if len(deaf) > 0 {
			seen = append(seen, "no gateway hears "+names("node", deaf))
		}
		return netv1alpha1.ReasonNodesCutOff, fmt.Sprintf("the gateways reach the peer on lane %s, but %s; UDP 4879 between nodes and gateway pods may be blocked, "+
			"or the agents may be gone, see `kubectl -n %s get daemonset liqo-route`", strings.Join(up, ", "), strings.Join(seen, ", and "), namespace)
	case len(down) > 0:
		return netv1alpha1.ReasonDegraded, fmt.Sprintf("lane %s up; %s", strings.Join(up, ", "), strings.Join(down, "; "))
	default:
		return netv1alpha1.ReasonConnected, fmt.Sprintf("lane %s up", strings.Join(up, ", "))
	}
}

func names(what string, all []string) string {
	all = slices.Sorted(slices.Values(all))
	if len(all) > 1 {
		what += "s"
	}
	text := what + " " + strings.Join(all[:min(len(all), maxNames)], ", ")
	if more := len(all) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// describe says what the tunnel uses: of the lowest lane that is up. What only wavers is not written again.
func describe(status *netv1alpha1.TunnelEndpointStatus, tunnel *netv1alpha1.TunnelEndpoint, legs []leg, working int, now time.Time) {
	used, connection := &legs[working], &status.Connection
	status.GatewayIP = used.address
	host, port := used.peer.Endpoint, ""
	if at, err := netip.ParseAddrPort(used.peer.Endpoint); err == nil {
		host, port = at.Addr().String(), strconv.Itoa(int(at.Port()))
	}
	connection.PeerConfiguration = map[string]string{
		"endpointIP": host, "port": port, "publicKey": used.peer.RemoteKey, "lane": strconv.Itoa(used.lane),
		"allowedIPs": seen(tunnel.Spec.RemotePodCIDR, tunnel.Spec.RemoteNATPodCIDR) + "," + seen(tunnel.Spec.RemoteExternalCIDR, tunnel.Spec.RemoteNATExternalCIDR),
	}
	said, err := time.ParseDuration(connection.Latency.Value)
	if err != nil {
		said = 0
	}
	// A busy machine is slow for a moment, again and again: what is shown here is written rarely, the metric shows it all the time.
	rests := said > 0 && now.Sub(connection.Latency.Timestamp.Time) < latencyRest
	if rtt := used.peer.RTTMicroseconds; !rests && otherLatency(said.Microseconds(), rtt) {
		connection.Latency = netv1alpha1.Latency{
			Value: (time.Duration(rtt) * time.Microsecond).String(), Timestamp: metav1.NewTime(now).Rfc3339Copy(),
		}
	}
	smallest := 0
	for i := range legs {
		if mtu := legs[i].mtu(); mtu > 0 && (smallest == 0 || mtu < smallest) {
			smallest = mtu
		}
	}
	if smallest > 0 {
		connection.MTU = int32(min(smallest, 1<<16))
	}
}

func (l *leg) mtu() int {
	if !l.up {
		return 0
	}
	return l.peer.MTU
}

// short bounds a text that came from elsewhere.
func short(text string) string {
	const longest = 200
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}
