// SPDX-License-Identifier: Apache-2.0

// Package translator translates addresses of pods and endpoints between this cluster and one peer, by the arithmetic that the gateways use and
// the networks in the peer's TunnelEndpoint. An address outside the pod network needs an IPMapping, which the translator creates.
//
// It must not know its callers, nor what the addresses are for: offloading declares the interface, and cmd/liqo fills it. Its proof: tables of
// translations, and the requests for mappings on a simulated clock.
package translator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/network/ipam"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=ipmappings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch

const (
	// maxMappings bounds how many mappings one peer has: users of namespaces choose the addresses.
	maxMappings = 1000
	// unusedTime is how long a mapping stays without an endpoint: those of a Service may come back.
	unusedTime = time.Minute
	// settleInterval is how often mappings are compared with the endpoints without a request; settlePause is the least time between two comparisons.
	settleInterval = 30 * time.Second
	settlePause    = 500 * time.Millisecond
	// syncInterval is how often Run checks whether everything was listed once.
	syncInterval = 20 * time.Millisecond
)

// Endpoints are the addresses of local endpoints that the peer is to reach, with their ports. complete is false while some are not known: then a missing
// one means nothing.
type Endpoints func() (all map[netip.Addr][]netv1alpha1.MappingPort, complete bool)

type Options struct {
	// Off: another network connects the clusters, and addresses are the same in both. Then Networks are those of the peer that the administrator of
	// this cluster wrote down. No other address of the peer is believed: it could be one of this cluster.
	Off      bool
	Networks []netip.Prefix
	// ClusterID is that of the peer, Namespace its tenant namespace, Node the name of its virtual node, which owns the mappings.
	ClusterID, Namespace, Node string
	// APIServer is that of this cluster, under an address that needs a mapping; invalid if the peer does not reach it. It gets a mapping when its address
	// is first translated, and keeps it, because pods that run know the address.
	APIServer netip.AddrPort
	// ErrNoCounterpart is the error for an address that the other cluster cannot reach, and never will.
	ErrNoCounterpart error
}

// Translator translates addresses between this cluster and one peer. An error other than Options.ErrNoCounterpart means that a translation is
// not known yet.
type Translator struct {
	options  Options
	client   client.WithWatch
	tunnels  *fanin.Source
	mappings *fanin.Source
	nodes    *fanin.Source
	changed  func()
	// endpoints is what the peer is to reach. request wakes Run, to compare the mappings with it.
	endpoints Endpoints
	request   chan struct{}

	mu     sync.RWMutex
	tunnel *netv1alpha1.TunnelNetworks
	// mapped is the mapping of each address that counts. all are all of them, the one that counts first: an administrator may create one for an
	// address that has one of ours.
	mapped map[netip.Addr]*netv1alpha1.IPMapping
	all    map[netip.Addr][]*netv1alpha1.IPMapping
	// left are addresses that get no mapping: they have no port that can be mapped, or there are too many.
	left map[netip.Addr]bool
	// serverAsked: the address of the API server was translated.
	serverAsked bool
	// unused are our mappings without an endpoint, by name, since when. Only Run uses it.
	unused map[string]time.Time
}

var errNotAgreed = errors.New("the clusters have not agreed on their networks yet")

// New returns a translator. It sends no request before Run.
func New(cfg *rest.Config, o Options) (*Translator, error) {
	kinds, err := scheme.Of(netv1alpha1.AddToScheme, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpoint"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("IPMapping"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: kinds, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create the client of the local cluster: %w", err)
	}
	t := empty(o)
	t.client = c
	here := func(context.Context) (client.WithWatch, error) { return c, nil }
	trim := func(object client.Object) { object.SetManagedFields(nil) }
	t.tunnels = fanin.New(fanin.Options{
		Object: &netv1alpha1.TunnelEndpoint{}, List: func() client.ObjectList { return &netv1alpha1.TunnelEndpointList{} }, Client: here, Trim: trim,
		Select: []client.ListOption{client.MatchingLabels{labels.TunnelCluster: t.options.ClusterID}}, Changed: t.tunnelChanged,
	})
	t.mappings = fanin.New(fanin.Options{
		Object: &netv1alpha1.IPMapping{}, List: func() client.ObjectList { return &netv1alpha1.IPMappingList{} }, Client: here, Trim: trim, Changed: t.mappingChanged,
	})
	t.nodes = fanin.New(fanin.Options{
		Object: &metav1.PartialObjectMetadata{}, Client: here, Trim: trim, Changed: func(client.Object, client.Object) {},
		List: func() client.ObjectList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
			return list
		},
		Select: []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.options.Node)}},
	})
	return t, nil
}

func empty(o Options) *Translator {
	return &Translator{
		options: o, changed: func() {}, request: make(chan struct{}, 1), unused: map[string]time.Time{},
		endpoints: func() (map[netip.Addr][]netv1alpha1.MappingPort, bool) { return nil, false },
		mapped:    map[netip.Addr]*netv1alpha1.IPMapping{}, all: map[netip.Addr][]*netv1alpha1.IPMapping{},
	}
}

// OnChange sets the function that is called when a translation changed. Call it before Run.
func (t *Translator) OnChange(changed func()) { t.changed = changed }

// SetEndpoints sets the function that returns what the peer is to reach. Call it before Run.
func (t *Translator) SetEndpoints(endpoints Endpoints) { t.endpoints = endpoints }

// Run keeps the translator up to date until ctx ends.
func (t *Translator) Run(ctx context.Context) error {
	if t.options.Off {
		return nil
	}
	t.tunnels.Add(ctx, t.options.Namespace)
	t.mappings.Add(ctx, fanin.Every)
	t.nodes.Add(ctx, fanin.Every)
	for synced := time.NewTicker(syncInterval); ; {
		if t.mappings.Synced(fanin.Every) && t.nodes.Synced(fanin.Every) && t.nodes.Get(client.ObjectKey{Name: t.options.Node}) != nil {
			synced.Stop()
			break // from now on it is known which addresses have no mapping
		}
		select {
		case <-ctx.Done():
			return nil
		case <-synced.C:
		}
	}
	regular := time.NewTicker(settleInterval)
	defer regular.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.request:
		case <-regular.C:
		}
		if err := t.settle(ctx, time.Now()); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("mappings of addresses not changed, so the peer may not reach some endpoints; trying again", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settlePause):
		}
	}
}

func (t *Translator) tunnelChanged(_, after client.Object) {
	endpoint, _ := after.(*netv1alpha1.TunnelEndpoint)
	t.mu.Lock()
	same := true
	switch {
	case endpoint == nil || endpoint.Spec.ClusterIdentity.ClusterID != t.options.ClusterID: // keep the last networks, because a deletion does not prove them wrong
	default:
		row := endpoint.Spec.Rows()[0] // of one address family so far
		same = t.tunnel != nil && *t.tunnel == row
		t.tunnel = &row
	}
	t.mu.Unlock()
	if !same {
		t.changed()
	}
}

func (t *Translator) mappingChanged(before, after client.Object) {
	old, _ := before.(*netv1alpha1.IPMapping)
	now, _ := after.(*netv1alpha1.IPMapping)
	t.mu.Lock()
	if old != nil {
		t.put(old, false)
	}
	if now != nil {
		t.put(now, len(now.Spec.ClusterIDs) == 0 || slices.Contains(now.Spec.ClusterIDs, t.options.ClusterID))
	}
	t.mu.Unlock()
	if old == nil || now == nil || old.Status.PeerAddresses[t.options.ClusterID] != now.Status.PeerAddresses[t.options.ClusterID] {
		t.changed()
	}
}

// put replaces a mapping among those of its address, or removes it. The lock is held.
func (t *Translator) put(mapping *netv1alpha1.IPMapping, exists bool) {
	address, err := netip.ParseAddr(mapping.Spec.Address)
	if err != nil {
		return
	}
	all := slices.DeleteFunc(t.all[address], func(one *netv1alpha1.IPMapping) bool { return one.Name == mapping.Name })
	if exists {
		all = append(all, mapping)
	}
	if len(all) == 0 {
		delete(t.all, address)
		delete(t.mapped, address)
		return
	}
	slices.SortFunc(all, t.compare)
	t.all[address], t.mapped[address] = all, all[0]
}

// compare orders the mappings of one address: one that has an address for the peer before one that may get one, before one that was refused. Of equals
// the oldest counts, so that a second mapping does not change the address under which pods of the peer know an endpoint.
func (t *Translator) compare(a, b *netv1alpha1.IPMapping) int {
	return cmp.Or(cmp.Compare(t.rank(a), t.rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

func (t *Translator) rank(mapping *netv1alpha1.IPMapping) int {
	_, err := netip.ParseAddr(mapping.Status.PeerAddresses[t.options.ClusterID])
	switch {
	case err == nil:
		return 0
	case meta.IsStatusConditionFalse(mapping.Status.Conditions, netv1alpha1.ConditionReady):
		return 2
	}
	return 1
}

// ToLocal returns the address under which this cluster reaches a pod of the peer.
func (t *Translator) ToLocal(address netip.Addr) (netip.Addr, error) {
	if t.options.Off {
		if !slices.ContainsFunc(t.options.Networks, func(network netip.Prefix) bool { return network.Contains(address) }) {
			return netip.Addr{}, t.options.ErrNoCounterpart
		}
		return address, nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.tunnel == nil {
		return netip.Addr{}, errNotAgreed
	}
	for _, network := range [][2]string{
		{string(t.tunnel.RemotePodCIDR), t.tunnel.RemoteNATPodCIDR}, {string(t.tunnel.RemoteExternalCIDR), t.tunnel.RemoteNATExternalCIDR},
	} {
		if mapped, ok := swapped(address, network[0], network[1]); ok {
			return mapped, nil
		}
	}
	return netip.Addr{}, t.options.ErrNoCounterpart
}

// ToRemote returns the address under which the peer reaches a local endpoint.
func (t *Translator) ToRemote(address netip.Addr) (netip.Addr, error) {
	if t.options.Off {
		return address, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tunnel == nil {
		return netip.Addr{}, errNotAgreed
	}
	if mapped, ok := swapped(address, string(t.tunnel.LocalPodCIDR), t.tunnel.LocalNATPodCIDR); ok {
		return mapped, nil
	}
	if mapping := t.mapped[address]; mapping != nil {
		if mapped, err := netip.ParseAddr(mapping.Status.PeerAddresses[t.options.ClusterID]); err == nil {
			return mapped, nil
		}
		if meta.IsStatusConditionFalse(mapping.Status.Conditions, netv1alpha1.ConditionReady) {
			return netip.Addr{}, t.options.ErrNoCounterpart // the mapping was refused for good
		}
	}
	if !isHost(address) {
		return netip.Addr{}, t.options.ErrNoCounterpart
	}
	if t.left[address] {
		return netip.Addr{}, t.options.ErrNoCounterpart
	}
	t.serverAsked = t.serverAsked || address == t.options.APIServer.Addr()
	select {
	case t.request <- struct{}{}:
	default:
	}
	return netip.Addr{}, fmt.Errorf("%s has no address in the external network yet", address)
}

// swapped translates an address from one network to another of the same size; "None" means the same network.
func swapped(address netip.Addr, from, to string) (netip.Addr, bool) {
	network, err := netip.ParsePrefix(from)
	if err != nil {
		return netip.Addr{}, false
	}
	other := network
	if to != "" && to != netv1alpha1.NotRemapped {
		if other, err = netip.ParsePrefix(to); err != nil {
			return netip.Addr{}, false
		}
	}
	return ipam.Swap(address, network, other)
}
