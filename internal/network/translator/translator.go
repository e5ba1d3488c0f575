// SPDX-License-Identifier: Apache-2.0

// Package translator translates addresses of pods and endpoints between this cluster and one peer, by the arithmetic that the gateways use and
// the networks in the peer's TunnelEndpoint. An address outside the pod network needs an IPMapping, which the translator creates.
//
// It must not know its callers, nor what the addresses are for: offloading declares the interface, and cmd/liqo fills it. Its proof: tables of
// translations, and the requests for mappings on a simulated clock.
package translator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/network/ipam"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=ipmappings,verbs=list;watch;create
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch

const (
	// maxMappings bounds how many addresses wait for a mapping. An address that has waited for requestExpiry no longer counts, and may be
	// requested again.
	maxMappings   = 1000
	requestExpiry = 5 * time.Minute
	// retryInterval is how soon a mapping is requested again.
	retryInterval = 5 * time.Second
	// syncInterval is how often Run checks whether everything was listed once.
	syncInterval = 20 * time.Millisecond
)

// Options configures a Translator.
type Options struct {
	// Off: another network connects the clusters, and addresses are the same in both. Then Networks are those of the peer that the administrator of
	// this cluster wrote down. No other address of the peer is believed: it could be one of this cluster.
	Off      bool
	Networks []netip.Prefix
	// ClusterID is that of the peer, Namespace its tenant namespace, Node the name of its virtual node, which owns the mappings.
	ClusterID, Namespace, Node string
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
	requests chan netip.Addr

	mu        sync.RWMutex
	tunnel    *netv1alpha1.TunnelEndpointSpec
	mapped    map[netip.Addr]*netv1alpha1.IPMapping
	requested map[netip.Addr]time.Time
}

var errNotAgreed = errors.New("the clusters have not agreed on their networks yet")

// New returns a translator. It sends no request before Run.
func New(cfg *rest.Config, o Options) (*Translator, error) {
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	if err := errors.Join(netv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpoint"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("IPMapping"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper})
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
		options: o, changed: func() {}, requests: make(chan netip.Addr, maxMappings),
		mapped: map[netip.Addr]*netv1alpha1.IPMapping{}, requested: map[netip.Addr]time.Time{},
	}
}

// OnChange sets the function that is called when a translation changed. Call it before Run.
func (t *Translator) OnChange(changed func()) { t.changed = changed }

// Run keeps the translator up to date until ctx ends.
func (t *Translator) Run(ctx context.Context) error {
	if t.options.Off {
		return nil
	}
	t.tunnels.Add(ctx, t.options.Namespace)
	t.mappings.Add(ctx, fanin.Every)
	t.nodes.Add(ctx, fanin.Every)
	check := time.NewTicker(syncInterval)
	defer check.Stop()
	for requests := (chan netip.Addr)(nil); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			if t.mappings.Synced(fanin.Every) && t.nodes.Synced(fanin.Every) && t.nodes.Get(client.ObjectKey{Name: t.options.Node}) != nil {
				requests = t.requests // from now on it is known which addresses have no mapping
				check.Stop()
			}
		case address := <-requests:
			if err := t.request(ctx, address); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Info("cannot create the mapping of an address, so the peer cannot reach it", "address", address, "reason", err.Error())
			}
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
		same = t.tunnel != nil && networksOf(t.tunnel) == networksOf(&endpoint.Spec)
		t.tunnel = &endpoint.Spec
	}
	t.mu.Unlock()
	if !same {
		t.changed()
	}
}

// networksOf returns the fields of a TunnelEndpoint that affect translations.
func networksOf(spec *netv1alpha1.TunnelEndpointSpec) [8]string {
	return [8]string{
		string(spec.LocalPodCIDR), spec.LocalNATPodCIDR, string(spec.LocalExternalCIDR), spec.LocalNATExternalCIDR,
		string(spec.RemotePodCIDR), spec.RemoteNATPodCIDR, string(spec.RemoteExternalCIDR), spec.RemoteNATExternalCIDR,
	}
}

func (t *Translator) mappingChanged(before, after client.Object) {
	old, _ := before.(*netv1alpha1.IPMapping)
	now, _ := after.(*netv1alpha1.IPMapping)
	t.mu.Lock()
	if old != nil {
		if address, err := netip.ParseAddr(old.Spec.Address); err == nil && t.mapped[address] != nil && t.mapped[address].Name == old.Name {
			delete(t.mapped, address)
		}
	}
	if now != nil && (len(now.Spec.ClusterIDs) == 0 || slices.Contains(now.Spec.ClusterIDs, t.options.ClusterID)) {
		if address, err := netip.ParseAddr(now.Spec.Address); err == nil {
			t.mapped[address] = now
			delete(t.requested, address)
		}
	}
	t.mu.Unlock()
	if old == nil || now == nil || old.Status.PeerAddresses[t.options.ClusterID] != now.Status.PeerAddresses[t.options.ClusterID] {
		t.changed()
	}
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
		if mapped, is := swapped(address, network[0], network[1]); is {
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
	if mapped, is := swapped(address, string(t.tunnel.LocalPodCIDR), t.tunnel.LocalNATPodCIDR); is {
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
	if !address.Is4() || address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() {
		return netip.Addr{}, t.options.ErrNoCounterpart
	}
	if len(t.requested) >= maxMappings {
		maps.DeleteFunc(t.requested, func(_ netip.Addr, since time.Time) bool { return time.Since(since) > requestExpiry })
	}
	if len(t.requested) < maxMappings && time.Since(t.requested[address]) > retryInterval {
		select {
		case t.requests <- address:
			t.requested[address] = time.Now()
		default:
		}
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

// request creates an IPMapping for an address, unless it has one. The virtual node owns it, so that it is deleted with the node.
func (t *Translator) request(ctx context.Context, address netip.Addr) error {
	t.mu.RLock()
	mapped := t.mapped[address] != nil
	t.mu.RUnlock()
	node := t.nodes.Get(client.ObjectKey{Name: t.options.Node})
	if mapped || node == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(address.String()))
	err := t.client.Create(ctx, &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{
			Name:            t.options.Node[:min(len(t.options.Node), 200)] + "-" + hex.EncodeToString(sum[:5]),
			Labels:          map[string]string{labels.AppPartOf: labels.PartOf, labels.RemoteClusterID: t.options.ClusterID},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID()}},
		},
		Spec: netv1alpha1.IPMappingSpec{Address: address.String(), ClusterIDs: []string{t.options.ClusterID}},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
