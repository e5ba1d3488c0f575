// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// tenancies are the peers of this cluster, read from its ForeignClusters.
type tenancies struct {
	local  discoveryv1alpha1.ClusterIdentity
	client client.Reader
	events events.EventRecorder
	// warned are the tenant namespaces in which a warning about ignored NetworkConfigs of the peer was recorded.
	warned sync.Map
}

// newTenancies returns the peers of the cluster local. The events are recorded at their ForeignClusters.
func newTenancies(local discoveryv1alpha1.ClusterIdentity, client client.Reader, events events.EventRecorder) *tenancies {
	return &tenancies{local: local, client: client, events: events}
}

// tenancy is a peer and its namespace here.
type tenancy struct {
	fc        *discoveryv1alpha1.ForeignCluster
	peer      discoveryv1alpha1.ClusterIdentity
	namespace string
}

// all returns the peers with a tenant namespace of their own.
func (s *tenancies) all(ctx context.Context, from client.Reader) ([]tenancy, error) {
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
func (s *tenancies) claimed(ctx context.Context, from client.Reader) (all []tenancy, err error) {
	var list discoveryv1alpha1.ForeignClusterList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list foreign clusters: %w", err)
	}
	for i := range list.Items {
		fc := &list.Items[i]
		id := fc.Spec.ClusterIdentity
		if fc.Status.TenantNamespace.Local == "" || id == nil || id.ClusterID == "" || id.ClusterName == "" || id.ClusterID == s.local.ClusterID {
			continue
		}
		if owner := discoveryv1alpha1.OwnerOf(list.Items, id.ClusterID); owner.Name == fc.Name {
			all = append(all, tenancy{fc: fc, peer: *id, namespace: fc.Status.TenantNamespace.Local})
		}
	}
	return all, nil
}

// of returns the owner of a namespace; nil if it is no tenant namespace. It is an error if several peers have it: while it is not known whose the
// namespace is, nothing in it is written or deleted.
func (s *tenancies) of(ctx context.Context, from client.Reader, namespace string) (*tenancy, error) {
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
func (s *tenancies) configs(ctx context.Context, of *tenancy) (ours, theirs *netv1alpha1.NetworkConfig, err error) {
	ours, theirs = &netv1alpha1.NetworkConfig{}, &netv1alpha1.NetworkConfig{}
	for name, config := range map[string]*netv1alpha1.NetworkConfig{s.local.NetworkConfigName(): ours, of.peer.NetworkConfigName(): theirs} {
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
func (s *tenancies) byConfig(ctx context.Context, object client.Object) []reconcile.Request {
	config, ok := object.(*netv1alpha1.NetworkConfig)
	if !ok || !isCopy(config) {
		return byNamespace(ctx, object)
	}
	of, err := s.of(ctx, s.client, config.Namespace)
	if err != nil || of == nil || config.Name == of.peer.NetworkConfigName() || config.Name == s.local.NetworkConfigName() {
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
	return config.Labels[labels.Replicated] == "true"
}

// isOwn checks both labels, because a peer may write those of its copies.
func isOwn(config *netv1alpha1.NetworkConfig) bool {
	return !isCopy(config) && config.Labels[labels.Replication] == "true"
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
func (s *tenancies) allPeers(ctx context.Context, _ client.Object) []reconcile.Request {
	return s.byID(ctx, "")
}

// byID enqueues the tenant namespace of one peer; of all, if the ID is empty.
func (s *tenancies) byID(ctx context.Context, clusterID string) (requests []reconcile.Request) {
	all, err := s.all(ctx, s.client)
	if err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a peer")
		return nil
	}
	for i := range all {
		if clusterID == "" || all[i].peer.ClusterID == clusterID {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: all[i].namespace}})
		}
	}
	return requests
}

// forget drops what is remembered of a namespace without a peer.
func (s *tenancies) forget(namespace string) { s.warned.Delete(namespace) }
