// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/report"
)

// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const annotationTrue = "true"

// Options configures the controllers of the network.
type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace, where the gateways run.
	Namespace string
	// PodCIDRs and ServiceCIDRs are the networks of this cluster. Peers reach the first pod network only.
	PodCIDRs, ServiceCIDRs []netip.Prefix
	// RemapPools and Pools are what the networks of peers are remapped to, in this order; Reserved never is. No RemapPools: ipam.DefaultNetworks.
	RemapPools, Pools, Reserved []netip.Prefix
	// Unmapped are networks of peers that are used as they are, whichever peer announces one inside of them.
	Unmapped []netip.Prefix

	// APIServer is the address of the Service kubernetes. Virtual kubelets ask for no other address without a restriction; invalid: they may.
	APIServer netip.Addr

	// SecureReportPort is the port of the gateways' reports, ReportPort that of gateways of earlier versions. Default 5877 and 5873.
	SecureReportPort, ReportPort int
	// SpreadAfter is how long gateways may share a node although another one is free. Default 5 minutes.
	SpreadAfter time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

func (o *Options) complete() {
	if o.ReportPort == 0 {
		o.ReportPort = report.Port
	}
	if o.SecureReportPort == 0 {
		o.SecureReportPort = report.SecurePort
	}
	if o.SpreadAfter == 0 {
		o.SpreadAfter = spreadAfter
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Validate refuses networks that cannot be those of this cluster.
func (o *Options) Validate() error {
	if len(o.PodCIDRs) == 0 {
		return errors.New("no pod network is set; set --pod-cidr to what `kubectl cluster-info dump | grep cluster-cidr` shows, or to the setting of the network plugin")
	}
	if len(o.ServiceCIDRs) == 0 {
		return errors.New("no service network is set; set --service-cidr to what `kubectl cluster-info dump | grep service-cluster-ip-range` shows")
	}
	if o.PodCIDRs[0].Bits() > 28 {
		return fmt.Errorf("pod network %s: the external network gets the same size and needs at least 16 addresses; want /28 or larger", o.PodCIDRs[0])
	}
	for i, network := range slices.Concat(o.PodCIDRs, o.ServiceCIDRs) {
		if network.Addr().Is6() && i > 0 && i != len(o.PodCIDRs) {
			continue // dual stack: IPv6 is not supported yet, and does no harm
		}
		if err := ipam.Check(network); err != nil {
			return fmt.Errorf("network of this cluster: %w", err)
		}
	}
	if err := ipam.CheckReserved(slices.Concat(o.pools(), o.Unmapped), o.Reserved, o.ownNetworks()); err != nil {
		return fmt.Errorf("pools: %w", err)
	}
	return nil
}

// pools returns the networks that are set apart for peers.
func (o *Options) pools() []netip.Prefix {
	if len(o.RemapPools) == 0 {
		return slices.Concat(ipam.DefaultNetworks(), o.Pools)
	}
	return slices.Concat(o.RemapPools, o.Pools)
}

// ownNetworks returns the networks of this cluster without the external one.
func (o *Options) ownNetworks() (all []ipam.Use) {
	for _, network := range o.PodCIDRs {
		all = append(all, ipam.Use{Name: "pod network", Network: network})
	}
	for _, network := range o.ServiceCIDRs {
		all = append(all, ipam.Use{Name: "service network", Network: network})
	}
	return all
}

// shared is the state that all controllers here use.
type shared struct {
	options    Options
	client     client.Client
	live       client.Reader // bypasses the cache
	own        *ssa.Applier  // applies as labels.OwnerNetwork
	gateways   *gateways
	poolReader *poolReader
	identity   *identity
	events     events.EventRecorder
	// warned are the tenant namespaces in which a warning about ignored NetworkConfigs of the peer was recorded.
	warned sync.Map
}

// Setup registers the controllers of the network. The manager's scheme must know the groups net.liqo.io and discovery.liqo.io.
func Setup(mgr manager.Manager, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	o.complete()
	gates, err := newGateways(mgr, &o)
	if err != nil {
		return err
	}
	identity, err := newIdentity(mgr, o.Namespace)
	if err != nil {
		return err
	}
	s := &shared{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerNetwork),
		gateways: gates, poolReader: &poolReader{options: o, live: mgr.GetAPIReader(), own: gates.cache},
		identity: identity,
		events:   mgr.GetEventRecorder(labels.OwnerNetwork),
	}
	return errors.Join(gates.setup(mgr), setupKeys(mgr, s), setupNetworkConfig(mgr, s), setupTunnelEndpoint(mgr, s), setupIPMapping(mgr, s), setupSpread(mgr, s), setupReports(mgr, s))
}

func (s *shared) keysName() types.NamespacedName {
	return types.NamespacedName{Namespace: s.options.Namespace, Name: KeysSecret}
}

// tenancy is a peer and its namespace here.
type tenancy struct {
	fc        *discoveryv1alpha1.ForeignCluster
	peer      discoveryv1alpha1.ClusterIdentity
	namespace string
}

// tenancies returns the peers with a tenant namespace of their own.
func (s *shared) tenancies(ctx context.Context, from client.Reader) ([]tenancy, error) {
	all, err := s.claimed(ctx, from)
	if err != nil {
		return nil, err
	}
	claims := map[string]int{}
	for i := range all {
		claims[all[i].namespace]++
	}
	return slices.DeleteFunc(all, func(t tenancy) bool { return claims[t.namespace] > 1 }), nil
}

// claimed returns the peers with a tenant namespace, and those whose ForeignCluster has the namespace of another peer. If several ForeignClusters claim one
// cluster ID, only one of them owns it.
func (s *shared) claimed(ctx context.Context, from client.Reader) (all []tenancy, err error) {
	var list discoveryv1alpha1.ForeignClusterList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list foreign clusters: %w", err)
	}
	for i := range list.Items {
		fc := &list.Items[i]
		id := fc.Spec.ClusterIdentity
		if fc.Status.TenantNamespace.Local == "" || id == nil || id.ClusterID == "" || id.ClusterName == "" || id.ClusterID == s.options.Local.ClusterID {
			continue
		}
		if owner := discoveryv1alpha1.OwnerOf(list.Items, id.ClusterID); owner.Name == fc.Name {
			all = append(all, tenancy{fc: fc, peer: *id, namespace: fc.Status.TenantNamespace.Local})
		}
	}
	return all, nil
}

// tenancyOf returns the owner of a namespace; nil if it is no tenant namespace. It is an error if several peers have it: while it is not known whose the
// namespace is, nothing in it is written or deleted.
func (s *shared) tenancyOf(ctx context.Context, from client.Reader, namespace string) (*tenancy, error) {
	all, err := s.claimed(ctx, from)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t tenancy) bool { return t.namespace != namespace })
	switch len(all) {
	case 0:
		return nil, nil
	case 1:
		return &all[0], nil
	}
	return nil, fmt.Errorf("ForeignClusters %s and %s have the same tenant namespace, %s; its label %s is the ID of the cluster whose it is: delete the other ForeignCluster",
		all[0].fc.Name, all[1].fc.Name, namespace, labels.ClusterID)
}

// configs returns the two NetworkConfigs of a tenant namespace; nil if missing. It reads only the expected names, because a peer can create any
// number of others.
func (s *shared) configs(ctx context.Context, of *tenancy) (ours, theirs *netv1alpha1.NetworkConfig, err error) {
	ours, theirs = &netv1alpha1.NetworkConfig{}, &netv1alpha1.NetworkConfig{}
	for name, config := range map[string]*netv1alpha1.NetworkConfig{s.options.Local.NetworkConfigName(): ours, of.peer.NetworkConfigName(): theirs} {
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: of.namespace, Name: name}, config); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("read network configuration %s/%s: %w", of.namespace, name, err)
		}
	}
	if !isOwn(ours) || ours.Labels[labels.RemoteID] != of.peer.ClusterID {
		ours = nil
	}
	if !isCopy(theirs) || theirs.Labels[labels.OriginID] != of.peer.ClusterID {
		theirs = nil
	}
	return ours, theirs, nil
}

// byConfig enqueues the namespace of a NetworkConfig. It ignores those of a peer with another name than expected, and warns once.
func (s *shared) byConfig(ctx context.Context, object client.Object) []reconcile.Request {
	config, ok := object.(*netv1alpha1.NetworkConfig)
	if !ok || !isCopy(config) {
		return byNamespace(ctx, object)
	}
	of, err := s.tenancyOf(ctx, s.client, config.Namespace)
	if err != nil || of == nil || config.Name == of.peer.NetworkConfigName() || config.Name == s.options.Local.NetworkConfigName() {
		return byNamespace(ctx, object) // Reconcile handles unknown owners, and copies with the name of our own
	}
	if _, known := s.warned.LoadOrStore(config.Namespace, true); !known {
		log.FromContext(ctx).Info("network configuration of a peer ignored, because of its name", "clusterID", of.peer.ClusterID, "name", config.Name)
		s.events.Eventf(of.fc, nil, corev1.EventTypeWarning, "NetworkConfigIgnored", "ReadNetworkConfig",
			"NetworkConfig %s/%.60s of the peer is ignored; only %s is used", config.Namespace, config.Name, of.peer.NetworkConfigName())
	}
	return nil
}

func isCopy(config *netv1alpha1.NetworkConfig) bool {
	return config.Labels[labels.Replicated] == annotationTrue
}

// isOwn checks both labels, because a peer may write those of its copies.
func isOwn(config *netv1alpha1.NetworkConfig) bool {
	return !isCopy(config) && config.Labels[labels.Replication] == annotationTrue
}

func older(a, b client.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Equal(&bt) {
		return a.GetNamespace()+"/"+a.GetName() < b.GetNamespace()+"/"+b.GetName()
	}
	return at.Before(&bt)
}

// byNamespace enqueues the namespace of an object.
func byNamespace(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// byPeer enqueues the tenant namespace of a ForeignCluster.
func byPeer(_ context.Context, object client.Object) []reconcile.Request {
	fc, ok := object.(*discoveryv1alpha1.ForeignCluster)
	if !ok || fc.Status.TenantNamespace.Local == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: fc.Status.TenantNamespace.Local}}}
}

// allPeers enqueues every tenant namespace.
func (s *shared) allPeers(ctx context.Context, _ client.Object) []reconcile.Request {
	return s.byID(ctx, everyPeer)
}

// byID enqueues the tenant namespace of one peer, or of all.
func (s *shared) byID(ctx context.Context, clusterID string) (requests []reconcile.Request) {
	all, err := s.tenancies(ctx, s.client)
	if err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a peer")
		return nil
	}
	for i := range all {
		if clusterID == everyPeer || all[i].peer.ClusterID == clusterID {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: all[i].namespace}})
		}
	}
	return requests
}

// nodes returns the real nodes of this cluster.
func (s *shared) nodes(ctx context.Context) ([]corev1.Node, error) {
	var all corev1.NodeList
	if err := s.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(all.Items), func(node corev1.Node) bool { return isVirtual(&node) }), nil
}

func (s *shared) services(ctx context.Context) ([]corev1.Service, error) {
	var all corev1.ServiceList
	if err := s.gateways.cache.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Services of gateways: %w", err)
	}
	return all.Items, nil
}

// ownLanes returns the lanes of this cluster, which are those with a Service.
func (s *shared) ownLanes(ctx context.Context) (lanes []int, err error) {
	services, err := s.services(ctx)
	if err != nil {
		return nil, err
	}
	for i := range services {
		if lane, ok := laneOf(services[i].Labels); ok {
			lanes = append(lanes, lane)
		}
	}
	return lanes, nil
}

// nodeChanged passes changes of nodes that matter here; heartbeats do not.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		now, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 || isReady(before) != isReady(now) || isVirtual(before) != isVirtual(now) ||
			before.Spec.Unschedulable != now.Spec.Unschedulable ||
			!slices.Equal(before.Status.Addresses, now.Status.Addresses)
	}}
}

// atStart enqueues a request when the controller starts.
func atStart(request reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request)
		return nil
	})
}
