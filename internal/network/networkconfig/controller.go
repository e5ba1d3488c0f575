// SPDX-License-Identifier: Apache-2.0

package networkconfig

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/network/endpoint"
	"liqo.io/liqo/internal/network/gateways"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/nodes"
	"liqo.io/liqo/internal/network/pace"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/tenants"
	"liqo.io/liqo/internal/network/trust"
)

// +kubebuilder:rbac:groups=net.liqo.io,resources=networkconfigs,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs/status,verbs=patch;update

// Options is what this cluster announces, and to whom.
type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace, where the gateways run.
	Namespace string
	Peers     *tenants.Reader
	Gateways  *gateways.Reader
	Pools     *pools.Reader
	Identity  *trust.Identity
	// Now is the clock.
	Now func() time.Time
}

// reconciler announces our network to each peer. Its unit of work is a tenant namespace.
type reconciler struct {
	Options
	client client.Client
	live   client.Reader // bypasses the cache
	own    *ssa.Applier  // applies as labels.OwnerNetwork
	// signed are the specs that this process signed last, by tenant namespace: the cache may have an earlier one, or none yet, and must not bring its
	// version back.
	signed sync.Map
	// reported limits what is written into the status of ours: it follows the answer of the peer, which writes that itself.
	reported *ratelimit.Limiter[string]
}

func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerNetwork), reported: pace.NewStatusLimiter(),
	}
	allPeers := handler.EnqueueRequestsFromMapFunc(o.Peers.AllPeers)
	err := builder.ControllerManagedBy(mgr).Named("networkconfig").
		Watches(&netv1alpha1.NetworkConfig{}, handler.EnqueueRequestsFromMapFunc(o.Peers.ByConfig)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(tenants.ByPeer)).
		Watches(&corev1.Node{}, allPeers, builder.WithPredicates(nodes.Changed())).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &corev1.Service{}, allPeers)).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &corev1.Pod{}, allPeers)).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &corev1.Secret{}, allPeers)).
		WatchesRawSource(source.Kind[client.Object](o.Identity.Cache, &corev1.Secret{}, allPeers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the NetworkConfig controller: %w", err)
	}
	return nil
}

// Reconcile publishes or withdraws our NetworkConfig in one tenant namespace.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := request.Name
	to, err := r.Peers.Of(ctx, r.client, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if to == nil {
		return reconcile.Result{}, r.clear(ctx, namespace)
	}
	ours, _, err := r.Peers.Configs(ctx, to)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !wantsNetwork(to.FC):
		return reconcile.Result{}, r.withdraw(ctx, ours)
	case ours != nil && ours.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // the event of its deletion enqueues the namespace again
	}
	again, err := r.publish(ctx, to, ours)
	return reconcile.Result{RequeueAfter: again}, err
}

// clear withdraws NetworkConfigs from a namespace without a peer. It checks that with a live read, because a mistake would disconnect the peer.
func (r *reconciler) clear(ctx context.Context, namespace string) error {
	r.Peers.Forget(namespace)
	var all netv1alpha1.NetworkConfigList
	if err := r.client.List(
		ctx, &all, client.InNamespace(namespace), client.MatchingLabels{labels.Ownership: labels.OwnershipConfig}, client.UnsafeDisableDeepCopy,
	); err != nil {
		return fmt.Errorf("list network configurations of %s: %w", namespace, err)
	}
	for i := range all.Items {
		if !tenants.IsOwn(&all.Items[i]) {
			continue
		}
		if still, err := r.Peers.Of(ctx, r.live, namespace); err != nil || still != nil {
			return err
		}
		if err := r.withdraw(ctx, &all.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) withdraw(ctx context.Context, ours *netv1alpha1.NetworkConfig) error {
	if ours == nil || ours.DeletionTimestamp != nil {
		return nil
	}
	if err := r.client.Delete(ctx, ours, client.Preconditions{UID: &ours.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete network configuration %s/%s: %w", ours.Namespace, ours.Name, err)
	}
	r.own.Forget(client.ObjectKeyFromObject(ours))
	r.signed.Delete(ours.Namespace)
	log.FromContext(ctx).Info("network configuration withdrawn", "clusterID", ours.Spec.Cluster.ClusterID)
	return nil
}

// publish writes our NetworkConfig, and the condition that reports whether it is complete. again is set if the limiter postpones the condition.
func (r *reconciler) publish(ctx context.Context, to *tenants.Tenant, ours *netv1alpha1.NetworkConfig) (again time.Duration, err error) {
	external, err := r.Pools.External(ctx)
	if err != nil {
		return 0, err
	}
	ends, keys, err := r.lanes(ctx)
	if err != nil || keys == nil {
		return 0, err // without keys there is nothing to publish; the event of the Secret enqueues the namespace again
	}
	identity, err := r.Identity.Keys(ctx)
	if err != nil || identity == nil {
		return 0, err // without a key to sign with, no peer would believe it; the event of the Secret enqueues the namespace again
	}
	spec := configSpec(to, r.Pools.Options.PodCIDRs[0].String(), external.String(), ends, keys)
	last, _ := r.signed.Load(to.Namespace)
	known, _ := last.(*netv1alpha1.NetworkConfigSpec)
	trust.Sign(*identity, r.Local.ClusterID, spec, trust.Latest(ours, known), r.Now())
	r.signed.Store(to.Namespace, spec)
	intent := netapply.NetworkConfig(r.Local.NetworkConfigName(), to.Namespace).
		WithLabels(map[string]string{
			labels.Replication: "true", labels.RemoteID: to.Peer.ClusterID, labels.ClusterID: to.Peer.ClusterID,
			labels.Ownership: labels.OwnershipConfig, labels.AppPartOf: labels.PartOf,
		}).
		WithSpec(specApply(spec))
	if ours == nil {
		if err := r.withdrawOld(ctx, to); err != nil {
			return 0, err
		}
		if cleared, err := r.clearName(ctx, to); err != nil || cleared {
			return 0, err
		}
		return 0, r.own.ApplyTo(ctx, intent, nil) // its event enqueues the namespace again, for the status
	}
	if err := r.own.ApplyTo(ctx, intent, ours); err != nil {
		return 0, err
	}
	_, _, answerErr := trust.AnswerOf(r.Local.ClusterID, to, ours)
	condition := published(ours, publication(ours, ends, answerErr), metav1.NewTime(r.Now()))
	if !r.reports(to.Namespace, ours, &condition) {
		return pace.StatusPause, nil
	}
	status := netapply.NetworkConfig(ours.Name, ours.Namespace).WithUID(ours.UID).
		WithStatus(netapply.NetworkConfigStatus().WithConditions(ssa.Condition(&condition)))
	return 0, client.IgnoreNotFound(r.own.ApplyStatusTo(ctx, status, ours))
}

// reports reports whether the condition may be as given now: it is already, or was not written too often. The peer may write it as well, or remove it.
func (r *reconciler) reports(namespace string, ours *netv1alpha1.NetworkConfig, now *metav1.Condition) bool {
	before := meta.FindStatusCondition(ours.Status.Conditions, netv1alpha1.ConditionPublished)
	return before != nil && *before == *now || r.reported.Allow(namespace, r.Now())
}

// withdrawOld deletes what an earlier version published under another name.
func (r *reconciler) withdrawOld(ctx context.Context, to *tenants.Tenant) error {
	var all netv1alpha1.NetworkConfigList
	if err := r.client.List(
		ctx, &all, client.InNamespace(to.Namespace), client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy,
	); err != nil {
		return fmt.Errorf("list network configurations of %s: %w", to.Namespace, err)
	}
	for i := range all.Items {
		if one := &all.Items[i]; tenants.IsOwn(one) && one.Name != r.Local.NetworkConfigName() {
			if err := r.withdraw(ctx, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// clearName deletes a copy with the name of our own NetworkConfig, which a peer can create because it writes into the same namespace. The event of
// the deletion enqueues the namespace again.
func (r *reconciler) clearName(ctx context.Context, to *tenants.Tenant) (bool, error) {
	var there netv1alpha1.NetworkConfig
	err := r.client.Get(ctx, client.ObjectKey{Namespace: to.Namespace, Name: r.Local.NetworkConfigName()}, &there)
	if err != nil || !tenants.IsCopy(&there) {
		return false, client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("deleting the peer's object with the name of our network configuration", "clusterID", to.Peer.ClusterID, "name", there.Name)
	if err := r.client.Delete(ctx, &there, client.Preconditions{UID: &there.UID}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete the peer's network configuration %s/%s, which has the name of our own: %w", there.Namespace, there.Name, err)
	}
	return true, nil
}

// lanes returns the endpoints of our gateways and their keys; nil keys if they do not exist yet.
func (r *reconciler) lanes(ctx context.Context) ([]endpoint.Gateway, *keyring.Ring, error) {
	var secret corev1.Secret
	if err := r.Gateways.Cache.Get(ctx, keyring.Name(r.Namespace), &secret); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	keys, err := keyring.Read(&secret)
	if err != nil {
		return nil, nil, err
	}
	if keys.Missing() {
		return nil, nil, nil
	}
	services, err := r.Gateways.Services(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := nodes.Real(ctx, r.client)
	if err != nil {
		return nil, nil, err
	}
	var pods corev1.PodList
	if err := r.Gateways.Cache.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list pods of gateways: %w", err)
	}
	return endpoint.Gateways(services, runningOn(pods.Items), nodes), &keys, nil
}

// runningOn returns the node of the gateway pod of each lane. During a replacement the newer pod counts.
func runningOn(pods []corev1.Pod) map[int]string {
	newest := map[int]*corev1.Pod{}
	for i := range pods {
		pod := &pods[i]
		lane, ok := endpoint.LaneOf(pod.Labels)
		if ok && pod.DeletionTimestamp == nil && !podphase.Final(pod.Status.Phase) &&
			pod.Spec.NodeName != "" && (newest[lane] == nil || tenants.Older(newest[lane], pod)) {
			newest[lane] = pod
		}
	}
	all := map[int]string{}
	for lane, pod := range newest {
		all[lane] = pod.Spec.NodeName
	}
	return all
}

// configSpec returns what we announce to a peer, unsigned.
func configSpec(to *tenants.Tenant, pods, external string, ends []endpoint.Gateway, keys *keyring.Ring) *netv1alpha1.NetworkConfigSpec {
	spec := &netv1alpha1.NetworkConfigSpec{
		Cluster:       netv1alpha1.ClusterIdentity{ClusterID: to.Peer.ClusterID, ClusterName: to.Peer.ClusterName},
		BackendType:   endpoint.Backend,
		BackendConfig: map[string]string{"publicKey": ""}, // the field is required
	}
	for i := range ends {
		end := &ends[i]
		spec.Lanes = append(spec.Lanes, netv1alpha1.Lane{Number: int32(end.Lane), PublicKey: keys.Advertised(end.Lane), Carriers: end.Carriers})
		if i > 0 {
			continue
		}
		// The documented fields hold the first gateway.
		spec.BackendConfig = map[string]string{"publicKey": keys.Advertised(end.Lane), "port": strconv.Itoa(int(end.Port))}
		if len(end.Carriers) > 0 && end.Carriers[0].Type == netv1alpha1.CarrierUDP {
			spec.EndpointIP = end.Carriers[0].Addresses[0]
		}
	}
	spec.SetRows([]netv1alpha1.Networks{{PodCIDR: netv1alpha1.CIDR(pods), ExternalCIDR: netv1alpha1.CIDR(external)}})
	return spec
}

func specApply(spec *netv1alpha1.NetworkConfigSpec) *netapply.NetworkConfigSpecApplyConfiguration {
	out := netapply.NetworkConfigSpec().
		WithCluster(netapply.ClusterIdentity().WithClusterID(spec.Cluster.ClusterID).WithClusterName(spec.Cluster.ClusterName)).
		WithPodCIDR(spec.PodCIDR).WithExternalCIDR(spec.ExternalCIDR).WithAdditionalPodCIDRs(spec.AdditionalPodCIDRs...).WithEndpointIP(spec.EndpointIP).
		WithBackendType(spec.BackendType).WithBackendConfig(spec.BackendConfig).WithVersion(spec.Version)
	for i := range spec.Networks {
		out.WithNetworks(netapply.Networks().WithPodCIDR(spec.Networks[i].PodCIDR).WithExternalCIDR(spec.Networks[i].ExternalCIDR))
	}
	for i := range spec.Lanes {
		out.WithLanes(endpoint.ApplyLane(spec.Lanes[i]))
	}
	for _, one := range spec.Signatures {
		out.WithSignatures(netapply.Signature().WithPublicKey(one.PublicKey).WithValue(one.Value))
	}
	return out
}

// published returns the condition Published, with the time of its last change.
func published(ours *netv1alpha1.NetworkConfig, condition metav1.Condition, now metav1.Time) metav1.Condition {
	conditions := append([]metav1.Condition(nil), ours.Status.Conditions...)
	condition.Type, condition.LastTransitionTime, condition.ObservedGeneration = netv1alpha1.ConditionPublished, now.Rfc3339Copy(), ours.Generation
	meta.SetStatusCondition(&conditions, condition)
	return *meta.FindStatusCondition(conditions, netv1alpha1.ConditionPublished)
}
