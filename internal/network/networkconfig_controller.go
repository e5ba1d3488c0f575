// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"strconv"

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
)

// +kubebuilder:rbac:groups=net.liqo.io,resources=networkconfigs,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=networkconfigs/status,verbs=patch;update

// configReconciler tells each peer what it needs to know of our network. Its unit of work is a tenant namespace.
type configReconciler struct{ *shared }

func setupNetworkConfig(mgr manager.Manager, s *shared) error {
	r := &configReconciler{s}
	everybody := handler.EnqueueRequestsFromMapFunc(s.everybody)
	err := builder.ControllerManagedBy(mgr).Named("networkconfig").
		Watches(&netv1alpha1.NetworkConfig{}, handler.EnqueueRequestsFromMapFunc(s.byConfig)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(byPeer)).
		Watches(&corev1.Node{}, everybody, builder.WithPredicates(nodeChanged())).
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &corev1.Service{}, everybody)).
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &corev1.Pod{}, everybody)).
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &corev1.Secret{}, everybody)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of network configurations: %w", err)
	}
	return nil
}

// Reconcile publishes, or takes back, in one tenant namespace.
func (r *configReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := request.Name
	to, err := r.tenancyOf(ctx, r.client, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if to == nil {
		return reconcile.Result{}, r.clear(ctx, namespace)
	}
	ours, _, err := r.configs(ctx, to)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !wantsNetwork(to.fc):
		return reconcile.Result{}, r.takeBack(ctx, ours)
	case ours != nil && ours.DeletionTimestamp != nil:
		return reconcile.Result{}, nil // once it is gone, its event brings us back
	}
	return reconcile.Result{}, r.publish(ctx, to, ours)
}

// clear takes back what is in a namespace that is no peer's any more. The peer is asked for past the cache: a mistake would cut it off.
func (r *configReconciler) clear(ctx context.Context, namespace string) error {
	r.strays.Delete(namespace)
	var all netv1alpha1.NetworkConfigList
	if err := r.client.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{labels.Ownership: labels.OwnershipConfig}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list network configurations of %s: %w", namespace, err)
	}
	for i := range all.Items {
		if !isOwn(&all.Items[i]) {
			continue
		}
		if still, err := r.tenancyOf(ctx, r.live, namespace); err != nil || still != nil {
			return err
		}
		if err := r.takeBack(ctx, &all.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *configReconciler) takeBack(ctx context.Context, ours *netv1alpha1.NetworkConfig) error {
	if ours == nil || ours.DeletionTimestamp != nil {
		return nil
	}
	if err := r.client.Delete(ctx, ours, client.Preconditions{UID: &ours.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete network configuration %s/%s: %w", ours.Namespace, ours.Name, err)
	}
	r.own.Forget(client.ObjectKeyFromObject(ours))
	log.FromContext(ctx).Info("network no longer told", "clusterID", ours.Spec.Cluster.ClusterID)
	return nil
}

// publish writes what we tell, and whether that is all there is to tell.
func (r *configReconciler) publish(ctx context.Context, to *tenancy, ours *netv1alpha1.NetworkConfig) error {
	external, err := r.book.External(ctx)
	if err != nil {
		return err
	}
	ends, keys, err := r.lanes(ctx)
	if err != nil || keys == nil {
		return err // without keys there is nothing to tell; the event of the Secret brings us back
	}
	intent := netapply.NetworkConfig(r.options.Local.NetworkConfigName(), to.namespace).
		WithLabels(map[string]string{
			labels.Replication: annotationTrue, labels.RemoteID: to.peer.ClusterID, labels.ClusterID: to.peer.ClusterID,
			labels.Ownership: labels.OwnershipConfig, labels.AppPartOf: labels.PartOf,
		}).
		WithSpec(configSpec(to, r.options.PodCIDRs[0].String(), external.String(), ends, keys))
	if ours == nil {
		if err := r.clearOld(ctx, to); err != nil {
			return err
		}
		if cleared, err := r.clearName(ctx, to); err != nil || cleared {
			return err
		}
		return r.own.ApplyTo(ctx, intent, nil) // its event brings us back, for the status
	}
	if err := r.own.ApplyTo(ctx, intent, ours); err != nil {
		return err
	}
	said := published(ours, ends, metav1.NewTime(r.options.Now()))
	status := netapply.NetworkConfig(ours.Name, ours.Namespace).WithUID(ours.UID).
		WithStatus(netapply.NetworkConfigStatus().WithConditions(conditionApply(&said)))
	return client.IgnoreNotFound(r.own.ApplyStatusTo(ctx, status, ours))
}

// clearOld takes back what an earlier version told under another name.
func (r *configReconciler) clearOld(ctx context.Context, to *tenancy) error {
	var all netv1alpha1.NetworkConfigList
	if err := r.client.List(ctx, &all, client.InNamespace(to.namespace), client.MatchingLabels{labels.Replication: annotationTrue}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list network configurations of %s: %w", to.namespace, err)
	}
	for i := range all.Items {
		if one := &all.Items[i]; isOwn(one) && one.Name != r.options.Local.NetworkConfigName() {
			if err := r.takeBack(ctx, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// clearName removes what a peer may have put in the place of ours: it writes into the same namespace. The event of it brings us back.
func (r *configReconciler) clearName(ctx context.Context, to *tenancy) (bool, error) {
	var there netv1alpha1.NetworkConfig
	err := r.client.Get(ctx, client.ObjectKey{Namespace: to.namespace, Name: r.options.Local.NetworkConfigName()}, &there)
	if err != nil || !isCopy(&there) {
		return false, client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("peer has written to the name of our network configuration, deleting that", "clusterID", to.peer.ClusterID, "name", there.Name)
	if err := r.client.Delete(ctx, &there, client.Preconditions{UID: &there.UID}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete network configuration %s/%s of the peer, which has the name of ours: %w", there.Namespace, there.Name, err)
	}
	return true, nil
}

// lanes says where our gateways are and which keys they have; no keys if none are made yet.
func (r *configReconciler) lanes(ctx context.Context) ([]endpoint, *ring, error) {
	var secret corev1.Secret
	if err := r.gateways.cache.Get(ctx, r.keysName(), &secret); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	keys, err := readRing(&secret)
	if err != nil {
		return nil, nil, err
	}
	if keys.missing() {
		return nil, nil, nil
	}
	services, err := r.services(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	var pods corev1.PodList
	if err := r.gateways.cache.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list pods of gateways: %w", err)
	}
	return endpoints(services, runningOn(pods.Items), nodes), &keys, nil
}

// runningOn is the node of the gateway pod of each lane. While one replaces another, the newer one counts.
func runningOn(pods []corev1.Pod) map[int]string {
	newest := map[int]*corev1.Pod{}
	for i := range pods {
		pod := &pods[i]
		lane, ok := laneOf(pod.Labels)
		ends := pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if ok && !ends && pod.Spec.NodeName != "" && (newest[lane] == nil || older(newest[lane], pod)) {
			newest[lane] = pod
		}
	}
	all := map[int]string{}
	for lane, pod := range newest {
		all[lane] = pod.Spec.NodeName
	}
	return all
}

// configSpec is what a peer is told.
func configSpec(to *tenancy, pods, external string, ends []endpoint, keys *ring) *netapply.NetworkConfigSpecApplyConfiguration {
	spec := netapply.NetworkConfigSpec().
		WithCluster(netapply.ClusterIdentity().WithClusterID(to.peer.ClusterID).WithClusterName(to.peer.ClusterName)).
		WithPodCIDR(netv1alpha1.CIDR(pods)).WithExternalCIDR(netv1alpha1.CIDR(external)).
		WithEndpointIP("").WithBackendType(backend)
	if len(ends) == 0 {
		spec.WithBackendConfig(map[string]string{"publicKey": ""}) // the field is required
	}
	for i := range ends {
		end := &ends[i]
		lane := laneApply(netv1alpha1.Lane{Number: int32(end.lane), PublicKey: keys.told(end.lane), Carriers: end.carriers})
		spec.WithLanes(lane)
		if i > 0 {
			continue
		}
		// The documented fields are those of the first gateway.
		spec.WithBackendConfig(map[string]string{"publicKey": keys.told(end.lane), "port": strconv.Itoa(int(end.port))})
		if len(end.carriers) > 0 {
			spec.WithEndpointIP(end.carriers[0].Addresses[0])
		}
	}
	return spec
}

func laneApply(lane netv1alpha1.Lane) *netapply.LaneApplyConfiguration {
	out := netapply.Lane().WithNumber(lane.Number).WithPublicKey(lane.PublicKey)
	for i := range lane.Carriers {
		carrier := &lane.Carriers[i]
		out.WithCarriers(netapply.Carrier().WithType(carrier.Type).WithAddresses(carrier.Addresses...).WithPort(carrier.Port))
	}
	return out
}

// published keeps the time of the last change.
func published(ours *netv1alpha1.NetworkConfig, ends []endpoint, now metav1.Time) metav1.Condition {
	conditions := append([]metav1.Condition(nil), ours.Status.Conditions...)
	said := publication(ours, ends)
	said.Type, said.LastTransitionTime, said.ObservedGeneration = netv1alpha1.ConditionPublished, now.Rfc3339Copy(), ours.Generation
	meta.SetStatusCondition(&conditions, said)
	return *meta.FindStatusCondition(conditions, netv1alpha1.ConditionPublished)
}
