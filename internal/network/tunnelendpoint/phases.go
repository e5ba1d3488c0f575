// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/nodes"
	"liqo.io/liqo/internal/network/pace"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/signature"
	"liqo.io/liqo/internal/network/tenants"
	"liqo.io/liqo/internal/network/trust"
	"liqo.io/liqo/internal/network/tunnelstatus"
)

// agreement holds the two networks of a cluster, or the prefixes under which the other one reaches them.
type agreement struct{ pods, external netip.Prefix }

// observe reads the objects of the peer.
func (r *reconciler) observe(ctx context.Context, s *scope) error {
	of, err := r.Peers.Of(ctx, r.client, s.Namespace)
	if err != nil {
		return err
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := r.client.List(ctx, &tunnels, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list tunnel endpoints of %s: %w", s.Namespace, err)
	}
	if of == nil {
		s.tunnel = first(tunnels.Items)
		return nil
	}
	s.Tenant = *of
	if i := slices.IndexFunc(tunnels.Items, func(t netv1alpha1.TunnelEndpoint) bool { return t.Name == s.Peer.UniqueName() }); i >= 0 {
		s.tunnel = &tunnels.Items[i]
	}
	s.ours, s.theirs, err = r.Peers.Configs(ctx, of)
	return err
}

func first(all []netv1alpha1.TunnelEndpoint) *netv1alpha1.TunnelEndpoint {
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// prune deletes the tunnel when one of the two NetworkConfigs is gone.
func (r *reconciler) prune(ctx context.Context, s *scope) error {
	if present(s.ours) && present(s.theirs) {
		return nil
	}
	delete(r.badSince, s.Namespace)
	delete(r.lost, s.Namespace)
	delete(r.carried, s.Namespace)
	if r.steady.forget(s.Namespace); s.FC == nil {
		delete(r.steady.last, s.Namespace)
	}
	if s.tunnel == nil || s.tunnel.DeletionTimestamp != nil || s.FC != nil && s.tunnel.Spec.ClusterIdentity.ClusterID != s.Peer.ClusterID {
		return nil
	}
	if s.FC == nil { // no tenant namespace: verify that with a live read
		if still, err := r.Peers.Of(ctx, r.live, s.Namespace); err != nil || still != nil {
			return err
		}
	}
	if err := r.recordVersion(ctx, s); err != nil {
		return err
	}
	if err := r.client.Delete(ctx, s.tunnel, client.Preconditions{UID: &s.tunnel.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete tunnel endpoint %s/%s: %w", s.tunnel.Namespace, s.tunnel.Name, err)
	}
	r.own.Forget(client.ObjectKeyFromObject(s.tunnel))
	log.FromContext(ctx).Info("tunnel endpoint deleted", "clusterID", s.tunnel.Spec.ClusterIdentity.ClusterID)
	s.tunnel = nil
	return nil
}

func present(config *netv1alpha1.NetworkConfig) bool {
	return config != nil && config.DeletionTimestamp == nil
}

// decide validates the networks that the peer claims and assigns the prefixes under which we reach them. It keeps a recorded assignment
// that is still valid; otherwise it allocates a new one from live reads.
func (r *reconciler) decide(ctx context.Context, s *scope) error {
	if !present(s.theirs) {
		return nil
	}
	if s.unread = !r.steady.reads(s, r.Now()); s.unread {
		s.requeue(claimPause)
		return nil
	}
	if s.refused = trust.Distrust(s.FC, s.tunnel, s.theirs); s.refused != nil {
		return nil
	}
	lanes, err := r.Gateways.Lanes(ctx)
	if err != nil {
		return err
	}
	all, free, err := r.assess(ctx, s, r.client, lanes)
	if err != nil || s.refused != nil {
		return err
	}
	if s.recall(free, r.Pools.WordsOf(all)) && s.sameLanes() {
		if r.steady.claim(s, r.Now()); !s.held {
			return nil
		}
	}
	all, free, err = r.assess(ctx, s, r.live, lanes)
	if err != nil || s.refused != nil {
		return err
	}
	// The cache may not have the version that was recorded when the previous tunnel ended.
	if fc := discoveryv1alpha1.OwnerOf(all.FCs, s.Peer.ClusterID); fc != nil {
		s.refused = trust.Distrust(fc, s.tunnel, s.theirs)
	}
	if s.refused != nil {
		return nil
	}
	if r.checkKeys(s, all); s.refused != nil {
		return nil
	}
	servers, err := r.Pools.PeerServers(ctx)
	if err != nil {
		return err
	}
	free.Avoid = append(free.Avoid, servers...)
	free.Here, free.There = r.Local.ClusterID, s.Peer.ClusterID
	// We dial its gateways at these addresses, so the assigned prefixes must not contain them.
	free.Used = append(free.Used, pools.CarrierLiterals("gateway of the peer", s.claim.Lanes)...)
	word := r.Pools.WordsOf(all)
	if !s.recall(free, word) {
		if s.refused = judgeNetworks(word, s, free, inUse(all, s.Namespace)); s.refused != nil {
			return nil
		}
	}
	r.steady.claim(s, r.Now())
	before := s.inUse(free)
	if s.agreed.pods, _, err = free.Acquire(s.Namespace, ipam.PodNetwork, s.claim.Pods, word.About(s.Namespace, s.claim.Pods)); err == nil {
		s.agreed.external, _, err = free.Acquire(s.Namespace, ipam.ExternalNetwork, s.claim.External, word.About(s.Namespace, s.claim.External))
	}
	switch {
	case errors.Is(err, ipam.ErrExhausted):
		s.refused = &claim.Refusal{Reason: netv1alpha1.ReasonNetworksExhausted, Message: err.Error()}
	case err != nil:
		s.refused = &claim.Refusal{Reason: netv1alpha1.ReasonNetworkInvalid, Message: err.Error()}
	default:
		return r.awaitReports(ctx, s, all, before)
	}
	return nil
}

// assess validates the claim against the recorded assignments.
func (r *reconciler) assess(ctx context.Context, s *scope, from client.Reader, lanes []int) (*pools.Records, *ipam.Pools, error) {
	all, err := r.Pools.Records(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	pools, err := r.Pools.Pools(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	s.reached, s.assessed, s.pools = pools.Reached, true, pools
	if s.claim, s.refused = claim.Read(s.theirs, r.Local.ClusterID, pools.Inside()); s.refused == nil {
		s.dropIdle(all, lanes)
	}
	return all, pools, nil
}

// recall takes over the recorded assignments if both exist, and no word of an administrator changes them.
func (s *scope) recall(pools *ipam.Pools, word pools.Words) bool {
	pods, ok := pools.Settled(s.Namespace, ipam.PodNetwork, s.claim.Pods, word.About(s.Namespace, s.claim.Pods))
	external, ok2 := pools.Settled(s.Namespace, ipam.ExternalNetwork, s.claim.External, word.About(s.Namespace, s.claim.External))
	s.agreed = agreement{pods, external}
	return ok && ok2
}

// sameLanes reports whether the tunnel already has the peer's keys, so that no other peer has them.
func (s *scope) sameLanes() bool {
	return s.tunnel != nil && slices.EqualFunc(s.tunnel.Spec.Lanes, s.claim.Lanes, func(a, b netv1alpha1.Lane) bool {
		return a.Number == b.Number && a.PublicKey == b.PublicKey
	})
}

// dropIdle drops lanes that this cluster does not have and whose key was agreed with another peer: a peer that claims another peer's key on
// such a lane, where no gateway would notice, must not get the other peer refused.
func (s *scope) dropIdle(all *pools.Records, ours []int) {
	taken := pools.KeysOfOthers(all, s.Namespace)
	s.claim.Lanes = slices.DeleteFunc(s.claim.Lanes, func(lane netv1alpha1.Lane) bool {
		return !slices.Contains(ours, int(lane.Number)) && taken[pools.LaneKey{Lane: lane.Number, Key: lane.PublicKey}] != ""
	})
}

// checkKeys refuses a key that belongs to another peer or to us: the gateway of a lane has one device for all peers, and would send this peer the
// packets of the other. The peer that agreed on a key first keeps it.
func (r *reconciler) checkKeys(s *scope, all *pools.Records) {
	taken := pools.KeysOfOthers(all, s.Namespace)
	for i := range all.Configs {
		if config := &all.Configs[i]; tenants.IsOwn(config) {
			for j := range config.Spec.Lanes {
				taken[pools.LaneKey{Lane: config.Spec.Lanes[j].Number, Key: config.Spec.Lanes[j].PublicKey}] = "this cluster"
			}
		}
	}
	for i := range s.claim.Lanes {
		lane := &s.claim.Lanes[i]
		if whose := taken[pools.LaneKey{Lane: lane.Number, Key: lane.PublicKey}]; whose != "" {
			s.refused = claim.Refuse(netv1alpha1.ReasonKeyInUse, "lane %d: public key %s belongs to %s", lane.Number, lane.PublicKey, whose)
		}
	}
}

// answer writes the decision into the status of the peer's copy. The write carries the version that was read, so it never answers another claim.
func (r *reconciler) answer(ctx context.Context, s *scope) error {
	if !present(s.theirs) || s.unread || s.held {
		return nil
	}
	after := s.theirs.DeepCopy()
	answerTo(&after.Status, s, metav1.NewTime(r.Now()))
	if s.refused == nil {
		identity, err := r.Identity.Keys(ctx)
		if err != nil || identity == nil {
			return err // the peer believes no unsigned answer; the event of the Secret enqueues the namespace again
		}
		after.Status.Signatures = signature.Answer(*identity, signature.Exchange{
			Asker: s.Peer.ClusterID, Answerer: r.Local.ClusterID, Config: &s.theirs.Spec, Answer: &after.Status,
		})
	}
	if sameAnswer(&s.theirs.Status, &after.Status) {
		return nil
	}
	r.recordDistrust(s, &after.Status)
	r.recordUnreported(s, &after.Status)
	after.ManagedFields = nil // our cache drops them
	err := r.client.Status().Update(ctx, after, client.FieldOwner(labels.OwnerNetwork))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the event of the change enqueues the namespace again
	}
	if err != nil {
		return fmt.Errorf("answer network configuration %s/%s: %w", s.theirs.Namespace, s.theirs.Name, err)
	}
	why := ""
	if s.refused != nil {
		why = s.refused.Reason
	}
	log.FromContext(ctx).Info(
		"network of a peer decided", "clusterID", s.Peer.ClusterID, "pods", after.Status.PodCIDRNAT, "external", after.Status.ExternalCIDRNAT,
		"refused", why,
	)
	return nil
}

func answerTo(status *netv1alpha1.NetworkConfigStatus, s *scope, now metav1.Time) {
	status.Processed, status.Signatures = false, nil
	status.SetRows(nil)
	status.ObservedGeneration = s.theirs.Generation
	condition := metav1.Condition{
		Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: s.theirs.Generation,
		LastTransitionTime: now.Rfc3339Copy(),
	}
	if s.refused != nil {
		condition.Reason, condition.Message = s.refused.Reason, s.refused.Message
	} else {
		status.Processed = true
		status.SetRows([]netv1alpha1.NetworksNAT{
			{PodCIDRNAT: networks.Remap(s.claim.Pods, s.agreed.pods), ExternalCIDRNAT: networks.Remap(s.claim.External, s.agreed.external)},
		})
		condition.Status, condition.Reason = metav1.ConditionTrue, netv1alpha1.ReasonAgreed
		condition.Message = fmt.Sprintf("pods are seen as %s, other addresses as %s", s.agreed.pods, s.agreed.external)
	}
	// Whatever else stands there is not ours: the copy's conditions are the receiver's.
	var before []metav1.Condition
	if old := meta.FindStatusCondition(status.Conditions, netv1alpha1.ConditionReady); old != nil {
		before = []metav1.Condition{*old}
	}
	meta.SetStatusCondition(&before, condition)
	status.Conditions = before
}

func sameAnswer(a, b *netv1alpha1.NetworkConfigStatus) bool {
	return a.Processed == b.Processed && a.PodCIDRNAT == b.PodCIDRNAT && a.ExternalCIDRNAT == b.ExternalCIDRNAT && slices.Equal(a.Networks, b.Networks) &&
		a.ObservedGeneration == b.ObservedGeneration && slices.Equal(a.Conditions, b.Conditions) && slices.Equal(a.Signatures, b.Signatures)
}

// writeStatus reports the state of the tunnel if it changed.
func (r *reconciler) writeStatus(ctx context.Context, s *scope) error {
	if s.tunnel == nil || s.tunnel.DeletionTimestamp != nil {
		return nil // its event enqueues the namespace again
	}
	facts := &tunnelstatus.Facts{
		Tunnel: s.tunnel, Observations: r.Gateways.Observations(), Refused: s.refused, BadSince: r.badSince[s.Namespace], Lost: r.lost[s.Namespace],
		Now: r.Now(), Namespace: r.Namespace, Ours: s.ours,
		Use: useOf(r.Pools.WordsFor(&s.Tenant), s.Namespace, &s.tunnel.Spec, s.awaits) + r.steady.text(s.Namespace), Unread: s.unread,
		MTU: r.steady.mtu[s.Namespace],
	}
	var err error
	if facts.Lanes, err = r.Gateways.Lanes(ctx); err != nil {
		return err
	}
	here, err := nodes.Real(ctx, r.client)
	if err != nil {
		return err
	}
	for i := range here {
		if nodes.IsReady(&here[i]) {
			facts.Ready = append(facts.Ready, here[i].Name)
		}
	}
	if facts.Conflict, err = r.conflict(ctx, s, here); err != nil {
		return err
	}
	status, badSince, requeueAfter := tunnelstatus.Of(facts)
	if delete(r.badSince, s.Namespace); !badSince.IsZero() {
		r.badSince[s.Namespace] = badSince
	}
	r.lost[s.Namespace], r.steady.mtu[s.Namespace] = facts.CutOffNow(), facts.MTU
	s.requeue(requeueAfter)
	if facts.MTU.Unsteady {
		s.requeue(pace.Stand)
	}
	if !r.steady.reports(s.Namespace, &s.tunnel.Status, &status, r.Now()) {
		s.requeue(pace.StatusPause)
		return nil
	}
	intent := netapply.TunnelEndpoint(s.tunnel.Name, s.tunnel.Namespace).WithUID(s.tunnel.UID).WithStatus(statusApply(&status))
	if err := r.own.ApplyStatusTo(ctx, intent, s.tunnel); client.IgnoreNotFound(err) != nil {
		return err
	}
	if before := s.tunnel.Status.Connection.Status; before != status.Connection.Status {
		log.FromContext(ctx).Info(
			"tunnel changed", "clusterID", s.Peer.ClusterID, "status", status.Connection.Status, "before", before, "message",
			status.Connection.StatusMessage,
		)
	}
	r.recordCutOff(s, &status)
	r.recordCarrier(s, &status)
	r.recordConflict(s, &status)
	return nil
}

func statusApply(status *netv1alpha1.TunnelEndpointStatus) *netapply.TunnelEndpointStatusApplyConfiguration {
	from := &status.Connection
	connection := netapply.Connection().WithStatus(from.Status).WithStatusMessage(from.StatusMessage)
	if from.Latency.Value != "" {
		connection.WithLatency(netapply.Latency().WithValue(from.Latency.Value).WithTimestamp(from.Latency.Timestamp))
	}
	if from.MTU > 0 {
		connection.WithMTU(from.MTU)
	}
	if len(from.PeerConfiguration) > 0 {
		connection.WithPeerConfiguration(from.PeerConfiguration)
	}
	out := netapply.TunnelEndpointStatus().WithConnection(connection).WithObservedGeneration(status.ObservedGeneration)
	if status.GatewayIP != "" {
		out.WithGatewayIP(status.GatewayIP)
	}
	for i := range status.Conditions {
		out.WithConditions(ssa.Condition(&status.Conditions[i]))
	}
	return out
}
