// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	sharingapply "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/admission"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/conditions"
	"liqo.io/liqo/internal/peering/identity"
	"liqo.io/liqo/internal/peering/replicate"
	"liqo.io/liqo/internal/peering/spec"
	"liqo.io/liqo/internal/peering/tenant"
)

// observe reads what the other phases and the status need.
func (r *reconciler) observe(ctx context.Context, s *scope) error {
	s.facts.Outgoing = spec.WantsOutgoing(s.fc, r.options.AutoJoin)
	if proxy := s.fc.Spec.ForeignProxyURL; proxy != "" {
		if err := remote.CheckProxyURL(proxy); err != nil {
			// No request is sent through this proxy. An existing peering continues, so that it can be ended.
			s.facts.Problem = conditions.NewProblem(discoveryv1alpha1.ReasonInvalidProxyURL, fmt.Sprintf("foreignProxyUrl %v; want http://HOST:PORT", err))
		}
	}
	if s.fc.InBand() && !r.options.InternalNetwork {
		s.facts.Problem = conditions.NewProblem(discoveryv1alpha1.ReasonInBandNotSupported,
			"spec.peeringType is InBand, which needs the network of Liqo, and that is off in this cluster (Helm value networking.internal); "+
				"delete this ForeignCluster, and peer out-of-band, or switch the network on")
	}
	if s.fc.Spec.ClusterIdentity == nil || s.fc.Spec.ClusterIdentity.ClusterID == "" || s.fc.Spec.ClusterIdentity.ClusterName == "" {
		return nil
	}
	s.peer = *s.fc.Spec.ClusterIdentity
	var all discoveryv1alpha1.ForeignClusterList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list foreign clusters: %w", err)
	}
	if found := spec.Check(s.fc, r.options.Local, all.Items); found != nil {
		s.facts.Problem = found
		return nil
	}
	var err error
	if s.namespace, err = tenant.Namespace(ctx, r.client, s.peer); err != nil {
		if s.taken(err) {
			return nil
		}
		return err
	}
	var pin corev1.ConfigMap
	err = r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.PinName(s.peer.ClusterID)}, &pin)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for the key of %s: %w", s.peer.ClusterID, err)
	}
	if err == nil {
		// A pin alone is a request: the controller of the pins decides on it, and creates the account.
		if s.facts.Admitted, err = tenant.HasAccount(ctx, r.client, s.namespace, s.peer.ClusterID); err != nil {
			return err
		}
	}
	if err := r.observeSlices(ctx, s); err != nil || !r.options.InternalNetwork {
		return err
	}
	return r.observeNetwork(ctx, s)
}

// observeSlices reads our request and those of the peer, which share the namespace.
func (r *reconciler) observeSlices(ctx context.Context, s *scope) error {
	var all sharingv1alpha1.ResourceSliceList
	if err := r.client.List(ctx, &all, client.InNamespace(s.namespace)); err != nil {
		return fmt.Errorf("list resource slices of %s: %w", s.namespace, err)
	}
	for i := range all.Items {
		switch slice := &all.Items[i]; {
		case slice.IsCopy():
			s.facts.Copies = append(s.facts.Copies, *slice)
		case slice.Labels[labels.RemoteID] == s.peer.ClusterID:
			s.facts.Slice = slice
		}
	}
	return nil
}

// observeNetwork reads the NetworkConfigs of both clusters and the TunnelEndpoint that resulted from them.
func (r *reconciler) observeNetwork(ctx context.Context, s *scope) error {
	// Two objects by name, not a list: a peer may have written any number.
	for name, into := range map[string]**netv1alpha1.NetworkConfig{
		r.options.Local.NetworkConfigName(): &s.facts.OurNetwork, s.peer.NetworkConfigName(): &s.facts.PeerNetwork,
	} {
		var config netv1alpha1.NetworkConfig
		err := r.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &config)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read network configuration %s/%s: %w", s.namespace, name, err)
		}
		if copied := config.Labels[labels.Replicated] == labels.True; err == nil && copied == (into == &s.facts.PeerNetwork) {
			*into = &config
		}
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := r.client.List(ctx, &tunnels, client.InNamespace(s.namespace), client.MatchingLabels{labels.TunnelCluster: s.peer.ClusterID}); err != nil {
		return fmt.Errorf("list tunnel endpoints of %s: %w", s.namespace, err)
	}
	if len(tunnels.Items) > 0 {
		s.facts.Tunnel = &tunnels.Items[0]
	}
	return nil
}

// ensureProcessable stops at a ForeignCluster with a problem, and discovers the identity of an unknown cluster.
func (r *reconciler) ensureProcessable(ctx context.Context, s *scope) error {
	switch {
	case s.facts.Problem.Disowns() && s.fc.DeletionTimestamp != nil:
		return r.removeFinalizer(ctx, s) // the tenant, if any, belongs to another ForeignCluster
	case s.facts.Problem.Disowns(), s.fc.InBand() && !r.options.InternalNetwork && s.fc.DeletionTimestamp == nil:
		return errWaiting
	case s.peer.ClusterID != "":
		return nil
	case s.fc.DeletionTimestamp != nil:
		return r.removeFinalizer(ctx, s)
	case s.fc.Spec.ForeignAuthURL == "":
		s.facts.Problem = conditions.NewProblem(
			discoveryv1alpha1.ReasonIdentityMismatch,
			"neither clusterIdentity nor foreignAuthUrl is set; set foreignAuthUrl to the URL that `liqoctl generate peer-command` prints in the remote cluster",
		)
		return errWaiting
	}
	return r.discoverIdentity(ctx, s)
}

// ensureFinalizer adds the finalizer before any phase creates something that the deletion has to remove.
func (r *reconciler) ensureFinalizer(ctx context.Context, s *scope) error {
	if s.fc.DeletionTimestamp != nil {
		if !controllerutil.ContainsFinalizer(s.fc, labels.FinalizerPeer) {
			s.gone = true
			return errWaiting
		}
		return nil
	}
	before := s.fc.DeepCopy()
	changed := controllerutil.AddFinalizer(s.fc, labels.FinalizerPeer)
	for key, value := range map[string]string{labels.ClusterID: s.peer.ClusterID, labels.DiscoveryType: labels.DiscoveryManual} {
		if have := s.fc.Labels[key]; have == "" || key == labels.ClusterID && have != value {
			metav1.SetMetaDataLabel(&s.fc.ObjectMeta, key, value)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return r.patch(ctx, s, before)
}

// patch sends a change of metadata or identity. On a conflict with another writer it requeues.
func (r *reconciler) patch(ctx context.Context, s *scope, before *discoveryv1alpha1.ForeignCluster) error {
	err := r.client.Patch(ctx, s.fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		s.requeueWithin(10 * time.Millisecond)
		return errWaiting
	case apierrors.IsNotFound(err):
		s.gone = true
		return errWaiting
	case err != nil:
		return fmt.Errorf("patch foreign cluster %s: %w", s.fc.Name, err)
	}
	return nil
}

func (r *reconciler) removeFinalizer(ctx context.Context, s *scope) error {
	before := s.fc.DeepCopy()
	if controllerutil.RemoveFinalizer(s.fc, labels.FinalizerPeer) {
		if err := r.patch(ctx, s, before); err != nil {
			return err
		}
	}
	s.gone = true
	return errWaiting
}

// decideIncoming decides whether the peer may use this cluster. All that this cluster gives follows from the result, in the status.
func (r *reconciler) decideIncoming(ctx context.Context, s *scope) error {
	decided, err := r.options.Admission.Decide(ctx, s.fc)
	if err != nil {
		return err
	}
	runs := false
	if before := s.fc.Status.Incoming; before != nil && decided.State != discoveryv1alpha1.IncomingAccepted &&
		(before.State == discoveryv1alpha1.IncomingAccepted || before.State == discoveryv1alpha1.IncomingWithdrawing) {
		if runs, err = tenant.RunsPods(ctx, r.client, s.peer.ClusterID); err != nil {
			return err
		}
	}
	status, requeueAfter := admission.Status(decided, s.fc.Status.Incoming, runs, admission.WithdrawDeadline, s.now)
	s.facts.Incoming = &status
	if requeueAfter > 0 {
		s.requeueWithin(min(requeueAfter, time.Second)) // its pods may leave earlier, and we observe none of them
	}
	return nil
}

// ensureTenant creates the peer's tenant namespace. Both directions need it while the ForeignCluster exists.
func (r *reconciler) ensureTenant(ctx context.Context, s *scope) error {
	if s.fc.DeletionTimestamp != nil {
		return nil
	}
	err := r.options.Tenants.Ensure(ctx, tenant.Tenant{Peer: s.peer, Namespace: s.namespace, Admitted: s.facts.Admitted, Accepted: s.facts.Incoming.Keeps()})
	switch {
	case errors.Is(err, tenant.ErrTerminating):
		s.requeueWithin(time.Second)
		s.facts.Identity, s.facts.IdentityMessage = conditions.IdentityPending, err.Error()
		return errWaiting
	case s.taken(err):
		return errWaiting
	}
	return err
}

// taken reports whether an error is that another cluster has the tenant namespace of the peer. Then the peer has none: what is in the namespace, and what
// follows from it, is the other cluster's.
func (s *scope) taken(err error) bool {
	if !errors.Is(err, tenant.ErrTaken) {
		return false
	}
	s.namespace = ""
	s.facts.Problem = conditions.NewProblem(
		discoveryv1alpha1.ReasonTenantNamespaceTaken, err.Error()+"; delete this ForeignCluster, and peer again under another name",
	)
	return true
}

// ensureSlice creates or withdraws our request. It is written before there is an identity, so that the virtual kubelet
// starts while the clusters still exchange identities.
func (r *reconciler) ensureSlice(ctx context.Context, s *scope) error {
	slice := s.facts.Slice
	switch {
	case !s.facts.Outgoing && slice == nil:
		return nil
	case !s.facts.Outgoing:
		return r.withdraw(ctx, s)
	case slice != nil && slice.DeletionTimestamp != nil:
		return nil // wanted again: the event of its removal triggers the next reconciliation
	}
	name := ""
	var live client.Object
	if slice != nil {
		name, live = slice.Spec.NodeName, slice
	} else {
		// An apply would take over a request of the peer, which may have any name.
		var there sharingv1alpha1.ResourceSliceList
		if err := r.live.List(ctx, &there, client.InNamespace(s.namespace), client.MatchingFields{"metadata.name": r.options.Local.ClusterName}); err != nil {
			return fmt.Errorf("look for resource slice %s/%s: %w", s.namespace, r.options.Local.ClusterName, err)
		}
		if s.facts.NameTaken = len(there.Items) > 0 && there.Items[0].IsCopy(); s.facts.NameTaken {
			return nil // the event of its deletion triggers the next reconciliation
		}
		// Serialised, and with a live read: two peers with the same name must not get the same node.
		r.nodeNaming.Lock()
		defer r.nodeNaming.Unlock()
		var nodes corev1.NodeList
		if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		var others sharingv1alpha1.ResourceSliceList
		if err := r.live.List(ctx, &others, client.MatchingLabels{labels.Replication: labels.True}); err != nil {
			return fmt.Errorf("list resource slices: %w", err)
		}
		name = spec.NodeName(s.peer, s.namespace, nodes.Items, others.Items)
	}
	wanted, err := r.sliceSpec(ctx, s, name)
	if err != nil {
		return err
	}
	intent := sharingapply.ResourceSlice(r.options.Local.ClusterName, s.namespace).
		WithLabels(map[string]string{
			labels.Replication: labels.True, labels.RemoteID: s.peer.ClusterID, labels.ClusterID: s.peer.ClusterID, labels.AppPartOf: labels.PartOf,
		}).
		WithSpec(wanted)
	if err := r.own.ApplyTo(ctx, intent, live); err != nil {
		return err
	}
	if slice == nil {
		s.facts.Slice = &sharingv1alpha1.ResourceSlice{Spec: sharingv1alpha1.ResourceSliceSpec{NodeName: name}}
		log.FromContext(ctx).Info("resources requested", "clusterID", s.peer.ClusterID, "node", name)
	}
	return nil
}

// withdraw deletes our request. From then on the deadlines of the request apply.
func (r *reconciler) withdraw(ctx context.Context, s *scope) error {
	slice := s.facts.Slice
	if s.forced && slice.Annotations[labels.ForceUnpeer] != labels.True {
		before := slice.DeepCopy()
		metav1.SetMetaDataAnnotation(&slice.ObjectMeta, labels.ForceUnpeer, labels.True)
		if err := r.client.Patch(ctx, slice, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotate resource slice %s/%s as forced: %w", slice.Namespace, slice.Name, err)
		}
	}
	if slice.DeletionTimestamp != nil {
		return nil
	}
	if err := r.client.Delete(ctx, slice, client.Preconditions{UID: &slice.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete resource slice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	now := metav1.NewTime(s.now)
	slice.DeletionTimestamp = &now
	log.FromContext(ctx).Info("resource request withdrawn", "clusterID", s.peer.ClusterID)
	return nil
}

// ensureConnection keeps the connection to the peer while our objects exist there or should.
func (r *reconciler) ensureConnection(ctx context.Context, s *scope) error {
	if s.facts.Identity != conditions.IdentityNotNeeded && s.facts.Identity != conditions.IdentityPending || s.facts.Slice != nil {
		state := r.options.Connector.State(s.peer.ClusterID)
		s.facts.Connected, s.facts.Ready, s.facts.ConnectionMessage = state.Connected, state.Ready, state.Message
		s.facts.Probed = !state.CheckedAt.IsZero()
		return nil
	}
	r.options.Connector.Disconnect(s.peer.ClusterID)
	if s.fc.InBand() && s.fc.DeletionTimestamp == nil {
		return nil // the tunnel lasts as long as the ForeignCluster: no direction could start again without it
	}
	return r.forgetNetwork(ctx, s)
}

// connect opens the connection, or updates its token.
func (r *reconciler) connect(ctx context.Context, s *scope, held *identity.Held) error {
	s.remote = held.Identity.Namespace
	if held.Identity.Dial = nil; s.byInvitation(held) {
		held.Identity.Dial = r.ways.Dial(s.peer.ClusterID, *s.invitation)
	}
	return r.options.Connector.Connect(ctx, replicate.Peer{ClusterID: s.peer.ClusterID, LocalNamespace: s.namespace, Identity: held.Identity})
}

// ensureDeletion deletes the tenant once no object is replicated and no pod of the peer runs here, or after the deadline.
func (r *reconciler) ensureDeletion(ctx context.Context, s *scope) error {
	if s.fc.DeletionTimestamp == nil {
		return nil
	}
	if s.facts.Slice != nil {
		return errWaiting // the request has its own deadlines, and the event of its removal triggers the next reconciliation
	}
	if left := s.fc.DeletionTimestamp.Add(admission.WithdrawDeadline).Sub(s.now); len(s.facts.Copies) > 0 && left > 0 && !s.forced {
		busy, err := tenant.RunsPods(ctx, r.client, s.peer.ClusterID)
		if err != nil {
			return err
		}
		if busy {
			s.requeueWithin(min(left, time.Second))
			return errWaiting
		}
	}
	r.options.Connector.Disconnect(s.peer.ClusterID)
	r.ways.Close(s.peer.ClusterID)
	if r.options.InternalNetwork {
		if err := r.proxies.Close(ctx, s.peer); err != nil {
			return err
		}
	}
	// The key is deleted first, so that no peer is admitted to a tenant that is being deleted.
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: auth.PinName(s.peer.ClusterID)}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: auth.ProviderName(s.peer.ClusterID)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: auth.TokenSecretName(s.peer.ClusterID)}},
	} {
		if err := r.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
		r.own.Forget(client.ObjectKeyFromObject(object))
	}
	r.own.ForgetNamespace(s.namespace)
	if err := r.options.Tenants.Delete(ctx, tenant.Tenant{Peer: s.peer, Namespace: s.namespace}); err != nil {
		return err
	}
	log.FromContext(ctx).Info("peer removed", "clusterID", s.peer.ClusterID)
	return r.removeFinalizer(ctx, s)
}
