// SPDX-License-Identifier: Apache-2.0

package tenants

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
	"liqo.io/liqo/apis/reasons"
)

// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reader are the peers of this cluster, read from its ForeignClusters.
type Reader struct {
	Local  discoveryv1alpha1.ClusterIdentity
	Client client.Reader
	events events.EventRecorder
	// warned are the tenant namespaces in which a warning about ignored NetworkConfigs of the peer was recorded.
	warned sync.Map
}

// New returns the peers of the cluster local. The events are recorded at their ForeignClusters.
func New(local discoveryv1alpha1.ClusterIdentity, client client.Reader, events events.EventRecorder) *Reader {
	return &Reader{Local: local, Client: client, events: events}
}

// Tenant is a peer and its namespace here.
type Tenant struct {
	FC        *discoveryv1alpha1.ForeignCluster
	Peer      discoveryv1alpha1.ClusterIdentity
	Namespace string
}

// All returns the peers with a tenant namespace of their own.
func (s *Reader) All(ctx context.Context, from client.Reader) ([]Tenant, error) {
	all, err := s.claimed(ctx, from)
	if err != nil {
		return nil, err
	}
	claims := map[string]int{}
	for i := range all {
		claims[all[i].Namespace]++
	}
	return slices.DeleteFunc(all, func(t Tenant) bool { return claims[t.Namespace] > 1 }), nil
}

// claimed returns the peers with a tenant namespace, and those whose ForeignCluster has the namespace of another peer. If several ForeignClusters claim one
// cluster ID, only one of them owns it.
func (s *Reader) claimed(ctx context.Context, from client.Reader) (all []Tenant, err error) {
	var list discoveryv1alpha1.ForeignClusterList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list foreign clusters: %w", err)
	}
	for i := range list.Items {
		fc := &list.Items[i]
		id := fc.Spec.ClusterIdentity
		if fc.Status.TenantNamespace.Local == "" || id == nil || id.ClusterID == "" || id.ClusterName == "" || id.ClusterID == s.Local.ClusterID {
			continue
		}
		if owner := discoveryv1alpha1.OwnerOf(list.Items, id.ClusterID); owner.Name == fc.Name {
			all = append(all, Tenant{FC: fc, Peer: *id, Namespace: fc.Status.TenantNamespace.Local})
		}
	}
	return all, nil
}

// Of returns the owner of a namespace; nil if it is no tenant namespace. It is an error if several peers have it: while it is not known whose the
// namespace is, nothing in it is written or deleted.
func (s *Reader) Of(ctx context.Context, from client.Reader, namespace string) (*Tenant, error) {
	all, err := s.claimed(ctx, from)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t Tenant) bool { return t.Namespace != namespace })
	switch len(all) {
	case 0:
		return nil, nil
	case 1:
		return &all[0], nil
	}
	return nil, fmt.Errorf("ForeignClusters %s and %s have the same tenant namespace, %s; its label %s is the ID of the cluster whose it is: "+
		"delete the other ForeignCluster",
		all[0].FC.Name, all[1].FC.Name, namespace, labels.ClusterID)
}

// Configs returns the two NetworkConfigs of a tenant namespace; nil if missing. It reads only the expected names, because a peer can create any
// number of others.
func (s *Reader) Configs(ctx context.Context, of *Tenant) (ours, theirs *netv1alpha1.NetworkConfig, err error) {
	ours, theirs = &netv1alpha1.NetworkConfig{}, &netv1alpha1.NetworkConfig{}
	for name, config := range map[string]*netv1alpha1.NetworkConfig{s.Local.NetworkConfigName(): ours, of.Peer.NetworkConfigName(): theirs} {
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: name}, config); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("read network configuration %s/%s: %w", of.Namespace, name, err)
		}
	}
	if !IsOwn(ours) || ours.Labels[labels.RemoteID] != of.Peer.ClusterID {
		ours = nil
	}
	if !IsCopy(theirs) || theirs.Labels[labels.OriginID] != of.Peer.ClusterID {
		theirs = nil
	}
	return ours, theirs, nil
}

// ByConfig enqueues the namespace of a NetworkConfig. It ignores those of a peer with another name than expected, and warns once.
func (s *Reader) ByConfig(ctx context.Context, object client.Object) []reconcile.Request {
	config, ok := object.(*netv1alpha1.NetworkConfig)
	if !ok || !IsCopy(config) {
		return ByNamespace(ctx, object)
	}
	of, err := s.Of(ctx, s.Client, config.Namespace)
	if err != nil || of == nil || config.Name == of.Peer.NetworkConfigName() || config.Name == s.Local.NetworkConfigName() {
		return ByNamespace(ctx, object) // Reconcile handles unknown owners, and copies with the name of our own
	}
	if _, known := s.warned.LoadOrStore(config.Namespace, true); !known {
		log.FromContext(ctx).Info("network configuration of a peer ignored, because of its name", "clusterID", of.Peer.ClusterID, "name", config.Name)
		s.events.Eventf(of.FC, nil, corev1.EventTypeWarning, reasons.NetworkConfigIgnored, "ReadNetworkConfig",
			"NetworkConfig %s/%.60s of the peer is ignored; only %s is used", config.Namespace, config.Name, of.Peer.NetworkConfigName())
	}
	return nil
}

func IsCopy(config *netv1alpha1.NetworkConfig) bool {
	return config.Labels[labels.Replicated] == "true"
}

// IsOwn checks both labels, because a peer may write those of its copies.
func IsOwn(config *netv1alpha1.NetworkConfig) bool {
	return !IsCopy(config) && config.Labels[labels.Replication] == "true"
}

func Older(a, b client.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Equal(&bt) {
		return a.GetNamespace()+"/"+a.GetName() < b.GetNamespace()+"/"+b.GetName()
	}
	return at.Before(&bt)
}

// ByNamespace enqueues the namespace of an object.
func ByNamespace(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// ByPeer enqueues the tenant namespace of a ForeignCluster.
func ByPeer(_ context.Context, object client.Object) []reconcile.Request {
	fc, ok := object.(*discoveryv1alpha1.ForeignCluster)
	if !ok || fc.Status.TenantNamespace.Local == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: fc.Status.TenantNamespace.Local}}}
}

// AllPeers enqueues every tenant namespace.
func (s *Reader) AllPeers(ctx context.Context, _ client.Object) []reconcile.Request {
	return s.ByID(ctx, "")
}

// ByID enqueues the tenant namespace of one peer; of all, if the ID is empty.
func (s *Reader) ByID(ctx context.Context, clusterID string) (requests []reconcile.Request) {
	all, err := s.All(ctx, s.Client)
	if err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a peer")
		return nil
	}
	for i := range all {
		if clusterID == "" || all[i].Peer.ClusterID == clusterID {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: all[i].Namespace}})
		}
	}
	return requests
}

// Forget drops what is remembered of a namespace without a peer.
func (s *Reader) Forget(namespace string) { s.warned.Delete(namespace) }
