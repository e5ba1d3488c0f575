// SPDX-License-Identifier: Apache-2.0

package tunnelstatus

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/pace"
	"liqo.io/liqo/internal/network/reach"
	"liqo.io/liqo/internal/network/report"
)

const (
	// lostGrace is how long an established connection may be lost before its status is an error.
	lostGrace = 4 * time.Second
	// latencyRest is the shortest time between two writes of the latency.
	latencyRest = 10 * time.Minute
	// maxNames bounds how many addresses a message names.
	maxNames = 5
)

// Facts are the inputs for the status of a TunnelEndpoint.
type Facts struct {
	Tunnel *netv1alpha1.TunnelEndpoint
	// Lanes of this cluster: those that have a Service.
	Lanes []int
	// Observations are the last reports of the gateways, by lane.
	Observations map[int]report.Observation
	// Ready are the names of the nodes that are Ready.
	Ready []string
	// Refused is why the present claim of the peer is not used; the spec holds the previous agreement.
	Refused *claim.Refusal
	// Unread: the present claim of the peer is not read yet, because it changed too often.
	Unread bool
	// Ours is what this cluster publishes for the peer; nil if nothing.
	Ours *netv1alpha1.NetworkConfig
	// Use states under which networks the peer is reached, and by whose word.
	Use string
	// Conflict states which networks of the peer nodes reach without it.
	Conflict string
	// BadSince is when the connection was first worse than its written status; zero if it was not at the last reconcile.
	BadSince time.Time
	// Lost are the nodes that did not reach the peer at the last reconcile. A new gateway never had a report from them.
	Lost []string
	// MTU is what is remembered of the MTU; Of updates it.
	MTU pace.Memory[int32]
	Now time.Time
	// Namespace of the gateways, for advice in messages.
	Namespace string
}

type laneStatus struct {
	lane    int
	address string // of the gateway pod
	peer    *report.Peer
	up      bool
	// reason and message are why it is not up.
	reason, message string
	// alive is when it last worked; zero if unknown.
	alive time.Time
}

// Of returns the status. badSince is an input of the next call, which must follow after requeueAfter at the latest; 0: no such time.
func Of(f *Facts) (status netv1alpha1.TunnelEndpointStatus, badSince time.Time, requeueAfter time.Duration) {
	old := &f.Tunnel.Status
	status = *old.DeepCopy()
	status.ObservedGeneration = f.Tunnel.Generation
	f.setReady(&status)
	if free := freeCondition(f.Conflict, old.Conditions); free != nil {
		f.set(&status.Conditions, netv1alpha1.ConditionNetworksFree, free.Status == metav1.ConditionTrue, free.Reason, free.Message)
	}

	laneStatuses := f.laneStatuses()
	cut, silent := f.cutOff(), f.silentNodes()
	reason, message := judge(laneStatuses, cut, silent, f.Namespace)
	if working := slices.IndexFunc(laneStatuses, func(l laneStatus) bool { return l.up }); working >= 0 {
		f.describe(&status, laneStatuses, working)
	}
	reaching := len(f.Ready) - len(cut) - len(silent)
	now := healthOf(reason, reaching, len(f.Ready))
	if was := writtenHealth(old); now < was {
		if badSince = f.BadSince; badSince.IsZero() {
			badSince = f.Now
		}
		// A loss of all lanes started before it was noticed.
		if alive := lastAlive(laneStatuses); !alive.IsZero() && alive.Before(badSince) {
			badSince = alive
		}
		if left := badSince.Add(lostGrace).Sub(f.Now); left > 0 {
			return status, badSince, left // the connection may come back, so the written status stays
		}
	}
	switch was := old.Connection.Status; {
	case now == whole:
		if missing := f.unobserved(); len(missing) > 0 {
			reason, message = netv1alpha1.ReasonDegraded, message+"; no report from "+reach.Nodes(missing)
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
		message = fmt.Sprintf("%d of %d Ready nodes reach the peer", reaching, len(f.Ready))
	}
	f.set(&status.Conditions, netv1alpha1.ConditionUsable, now > none, reason, message)
	return status, badSince, 0
}

func (f *Facts) set(conditions *[]metav1.Condition, kind string, is bool, reason, message string) {
	state := metav1.ConditionFalse
	if is {
		state = metav1.ConditionTrue
	}
	now := metav1.NewTime(f.Now).Rfc3339Copy()
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: state, Reason: reason, Message: message, ObservedGeneration: f.Tunnel.Generation, LastTransitionTime: now,
	})
}

// setReady sets ReasonAnswerPending before any other reason, because agents read it: a peer that does not answer must not decide which networks of this
// cluster count for the others.
func (f *Facts) setReady(status *netv1alpha1.TunnelEndpointStatus) {
	if local := &f.Tunnel.Spec; f.Ours != nil && (local.LocalPodCIDR != f.Ours.Spec.PodCIDR || local.LocalExternalCIDR != f.Ours.Spec.ExternalCIDR) {
		f.set(&status.Conditions, netv1alpha1.ConditionReady, false, netv1alpha1.ReasonAnswerPending, fmt.Sprintf(
			"the networks of this cluster are now %s for pods and %s for other addresses, and the peer has not answered that; the previous agreement "+
				"stays in use until another peer has",
			f.Ours.Spec.PodCIDR, f.Ours.Spec.ExternalCIDR))
		return
	}
	if f.Unread && meta.FindStatusCondition(status.Conditions, netv1alpha1.ConditionReady) != nil {
		return
	}
	if f.Refused != nil {
		f.set(&status.Conditions, netv1alpha1.ConditionReady, false, f.Refused.Reason, f.Refused.Message+"; the previous agreement stays in use")
		return
	}
	f.set(&status.Conditions, netv1alpha1.ConditionReady, true, netv1alpha1.ReasonAgreed, f.Use)
}

// laneStatuses returns the states of the lanes that both clusters have.
func (f *Facts) laneStatuses() (laneStatuses []laneStatus) {
	for i := range f.Tunnel.Spec.Lanes {
		if number := int(f.Tunnel.Spec.Lanes[i].Number); slices.Contains(f.Lanes, number) {
			laneStatuses = append(laneStatuses, f.laneStatus(number))
		}
	}
	return laneStatuses
}

func (f *Facts) laneStatus(number int) laneStatus {
	h, ok := f.Observations[number]
	l := laneStatus{lane: number, address: h.Address}
	notUp := func(reason, format string, values ...any) laneStatus {
		l.reason, l.message = reason, fmt.Sprintf("lane %d: ", number)+fmt.Sprintf(format, values...)
		return l
	}
	if !ok {
		return notUp(netv1alpha1.ReasonGatewaySilent, "no gateway pod runs; see `kubectl -n %s get pods -l net.liqo.io/gateway=active`", f.Namespace)
	}
	l.peer = h.Peer(f.Tunnel.Spec.ClusterIdentity.ClusterID)
	l.alive = alive(&h, l.peer)
	there := f.whereTo(number, l.peer)
	if h.Silent && h.Unproven {
		return notUp(netv1alpha1.ReasonGatewaySilent, "what answers at %s, the address of gateway pod %s, does not have its key, so its report "+
			"does not count; see which pod has the address, and whether all gateways read Secret %s", h.Address, h.Pod, keyring.SecretName)
	}
	if h.Silent {
		return notUp(netv1alpha1.ReasonGatewaySilent, "gateway pod %s at %s does not report; see `kubectl -n %s logs %[1]s`", h.Pod, h.Address, f.Namespace)
	}
	if l.peer != nil && l.peer.Up {
		l.up = true
		return l
	}
	switch {
	case h.Reported.Error != "":
		return notUp(netv1alpha1.ReasonGatewayFailed, "gateway pod %s: %s", h.Pod, short(h.Reported.Error))
	case l.peer == nil:
		return notUp(netv1alpha1.ReasonGatewayFailed, "gateway pod %s has not created the tunnel yet", h.Pod)
	case l.peer.Problem != "":
		return notUp(netv1alpha1.ReasonGatewayFailed, "%s", short(l.peer.Problem))
	case report.HandshakeState(l.peer) < 2 && l.peer.Endpoint == "":
		return notUp(netv1alpha1.ReasonNoHandshake, "the peer's gateway cannot be dialled, and has not dialled this one; if this one cannot be "+
			"reached either, set annotation liqo.io/override-address on its Service")
	case report.HandshakeState(l.peer) == 0:
		return notUp(netv1alpha1.ReasonNoHandshake, "no handshake with %s; UDP may be blocked between the clusters, or the peer's gateway is not there", there)
	case report.HandshakeState(l.peer) == 1:
		return notUp(
			netv1alpha1.ReasonNoHandshake,
			"the last handshake with %s is older than %d s; UDP may be blocked between the clusters, or the peer's gateway is gone", there,
			report.StaleHandshake,
		)
	default:
		return notUp(
			netv1alpha1.ReasonProbesLost,
			"the handshake with %s succeeded, but probes do not come back; the peer's gateway may be gone, or may not have applied this cluster's addresses yet",
			there,
		)
	}
}

// whereTo returns the announced addresses of the peer's gateway, because the one that is tried at present changes all the time.
func (f *Facts) whereTo(number int, peer *report.Peer) string {
	var all []string
	for i := range f.Tunnel.Spec.Lanes {
		lane := &f.Tunnel.Spec.Lanes[i]
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

// alive returns when a lane last worked.
func alive(h *report.Observation, peer *report.Peer) time.Time {
	if h.At.IsZero() || peer == nil || peer.SilentMilliseconds < 0 {
		return time.Time{}
	}
	return h.At.Add(-time.Duration(peer.SilentMilliseconds) * time.Millisecond)
}

// lastAlive returns when the last lane worked; zero if one is up, or none ever was.
func lastAlive(laneStatuses []laneStatus) (last time.Time) {
	for i := range laneStatuses {
		if laneStatuses[i].up {
			return time.Time{}
		}
		if laneStatuses[i].alive.After(last) {
			last = laneStatuses[i].alive
		}
	}
	return last
}

// judge returns the reason and message for the connection. cut are the nodes that reported that no lane works, silent those that no longer report.
func judge(laneStatuses []laneStatus, cut, silent []string, namespace string) (reason, message string) {
	var up, down []string
	for i := range laneStatuses {
		if laneStatuses[i].up {
			up = append(up, strconv.Itoa(laneStatuses[i].lane))
			continue
		}
		if reason == "" {
			reason = laneStatuses[i].reason
		}
		down = append(down, laneStatuses[i].message)
	}
	switch {
	case len(laneStatuses) == 0:
		return netv1alpha1.ReasonNoCommonLane, "no lane has a gateway in both clusters; see `kubectl get services -A -l net.liqo.io/gateway` in both"
	case len(up) == 0:
		return reason, strings.Join(down, "; ")
	case len(cut)+len(silent) > 0:
		var seen []string
		if len(cut) > 0 {
			seen = append(seen, "probes do not come back to "+reach.Nodes(cut))
		}
		if len(silent) > 0 {
			seen = append(seen, "no gateway receives reports from "+reach.Nodes(silent))
		}
		return netv1alpha1.ReasonNodesCutOff, fmt.Sprintf("the gateways reach the peer on lane %s, but %s; UDP 4879 between nodes and gateway pods may be blocked, "+
			"or the agents may be gone, see `kubectl -n %s get daemonset liqo-route`", strings.Join(up, ", "), strings.Join(seen, ", and "), namespace)
	case len(down) > 0:
		return netv1alpha1.ReasonDegraded, fmt.Sprintf("lane %s up; %s", strings.Join(up, ", "), strings.Join(down, "; "))
	default:
		return netv1alpha1.ReasonConnected, fmt.Sprintf("lane %s up", strings.Join(up, ", "))
	}
}

// describe fills in what the tunnel uses, from the lowest lane that is up. It does not rewrite values that only waver.
func (f *Facts) describe(status *netv1alpha1.TunnelEndpointStatus, laneStatuses []laneStatus, working int) {
	tunnel, now := f.Tunnel, f.Now
	used, connection := &laneStatuses[working], &status.Connection
	status.GatewayIP = used.address
	host, port := used.peer.Endpoint, ""
	if at, err := netip.ParseAddrPort(used.peer.Endpoint); err == nil {
		host, port = at.Addr().String(), strconv.Itoa(int(at.Port()))
	}
	connection.PeerConfiguration = map[string]string{
		"endpointIP": host, "port": port, "publicKey": used.peer.RemoteKey, "lane": strconv.Itoa(used.lane),
		"allowedIPs": networks.Seen(tunnel.Spec.RemotePodCIDR, tunnel.Spec.RemoteNATPodCIDR) +
			"," + networks.Seen(tunnel.Spec.RemoteExternalCIDR, tunnel.Spec.RemoteNATExternalCIDR),
	}
	if used.peer.Carrier != "" {
		connection.PeerConfiguration[netv1alpha1.PeerCarrier] = used.peer.Carrier
	}
	if used.peer.WhyNot != "" {
		connection.PeerConfiguration[netv1alpha1.PeerCarrierReason] = short(used.peer.WhyNot)
	}
	reported, err := time.ParseDuration(connection.Latency.Value)
	if err != nil {
		reported = 0
	}
	// The latency on a busy machine has many short peaks. The status is written rarely; the metric shows every value.
	pausedUntil := reported > 0 && now.Sub(connection.Latency.Timestamp.Time) < latencyRest
	if rtt := used.peer.RTTMicroseconds; !pausedUntil && report.LatencyDiffers(reported.Microseconds(), rtt) {
		connection.Latency = netv1alpha1.Latency{
			Value: (time.Duration(rtt) * time.Microsecond).String(), Timestamp: metav1.NewTime(now).Rfc3339Copy(),
		}
	}
	smallest := 0
	for i := range laneStatuses {
		if mtu := laneStatuses[i].mtu(); mtu > 0 && (smallest == 0 || mtu < smallest) {
			smallest = mtu
		}
	}
	if smallest > 0 {
		connection.MTU, f.MTU = settleMTU(f.MTU, connection.MTU, int32(min(smallest, 1<<16)), now)
	}
}

func (l *laneStatus) mtu() int {
	if !l.up {
		return 0
	}
	return l.peer.MTU
}

// short bounds a text from another process.
func short(text string) string { return printable.Line(text, 200) }

// settleMTU returns the MTU to use: nodes apply it. A smaller one counts at once, because larger packets are lost.
func settleMTU(m pace.Memory[int32], used, measured int32, now time.Time) (use int32, next pace.Memory[int32]) {
	if measured < used {
		return measured, pace.Memory[int32]{Seen: measured, Since: now, Unsteady: true}
	}
	use, next, _ = pace.Settle(m, used, measured, now)
	return use, next
}

// freeCondition returns the condition NetworksFree; nil as long as there was no conflict, so that nothing is written for it.
func freeCondition(conflict string, before []metav1.Condition) *metav1.Condition {
	switch {
	case conflict != "":
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: netv1alpha1.ReasonNetworkOverlapsNode, Message: conflict}
	case meta.FindStatusCondition(before, netv1alpha1.ConditionNetworksFree) != nil:
		return &metav1.Condition{
			Status: metav1.ConditionTrue, Reason: netv1alpha1.ReasonNetworksFree,
			Message: "no node reaches a network of the peer without it; a network that was remapped for that stays so until it is listed in " +
				"spec.network.forcedCIDRs of the ForeignCluster",
		}
	default:
		return nil
	}
}

// CanWait reports whether a status differs, but only in what describes the connection.
func CanWait(before, now *netv1alpha1.TunnelEndpointStatus) bool {
	is := func(status *netv1alpha1.TunnelEndpointStatus, kind string) metav1.ConditionStatus {
		if found := meta.FindStatusCondition(status.Conditions, kind); found != nil {
			return found.Status
		}
		return ""
	}
	for _, kind := range []string{netv1alpha1.ConditionReady, netv1alpha1.ConditionConnected, netv1alpha1.ConditionUsable} {
		if is(before, kind) != is(now, kind) {
			return false
		}
	}
	return before.Connection.Status == now.Connection.Status && before.ObservedGeneration == now.ObservedGeneration && !equality.Semantic.DeepEqual(before, now)
}
