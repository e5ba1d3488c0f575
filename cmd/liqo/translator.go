// SPDX-License-Identifier: Apache-2.0

package main

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
	"liqo.io/liqo/internal/offloading/reflection/project"
)

const (
	// mostMappings is how many addresses outside the pod network may wait for a mapping at a time. One that has waited for askedFor makes
	// room for others, and may be asked for again.
	mostMappings = 1000
	mapAgain     = 5 * time.Second
	askedFor     = 5 * time.Minute
)

// translator turns addresses of pods into those by which the other cluster knows them: by the arithmetic that the gateways use, from
// the networks in the TunnelEndpoint of the peer. Addresses outside the pod network have an IPMapping, which it asks for.
type translator struct {
	// off: there is no network of ours, and addresses are the same everywhere.
	off      bool
	peer     string
	node     string
	client   client.WithWatch
	tunnels  *fanin.Source
	mappings *fanin.Source
	nodes    *fanin.Source
	changed  func()
	wanted   chan netip.Addr

	mu     sync.RWMutex
	tunnel *netv1alpha1.TunnelEndpointSpec
	mapped map[netip.Addr]*netv1alpha1.IPMapping
	asked  map[netip.Addr]time.Time
}

var errNotAgreed = errors.New("the networks of the two clusters are not agreed yet")

func newTranslator(cfg *rest.Config, o *virtualKubeletOptions) (*translator, error) {
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	if err := errors.Join(netv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpoint"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("IPMapping"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	t := &translator{
		off: o.reflection.noInternalNetwork, peer: o.node.ClusterID, node: o.node.NodeName, client: c, changed: func() {}, wanted: make(chan netip.Addr, mostMappings),
		mapped: map[netip.Addr]*netv1alpha1.IPMapping{}, asked: map[netip.Addr]time.Time{},
	}
	here := func(context.Context) (client.WithWatch, error) { return c, nil }
	trim := func(object client.Object) { object.SetManagedFields(nil) }
	t.tunnels = fanin.New(fanin.Options{
		Object: &netv1alpha1.TunnelEndpoint{}, List: func() client.ObjectList { return &netv1alpha1.TunnelEndpointList{} }, Client: here, Trim: trim,
		Select: []client.ListOption{client.MatchingLabels{labels.TunnelCluster: t.peer}}, Changed: t.tunnelChanged,
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
		Select: []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.node)}},
	})
	return t, nil
}

// run keeps the translator up to date until ctx ends.
func (t *translator) run(ctx context.Context, tenant string) error {
	if t.off {
		return nil
	}
	t.tunnels.Add(ctx, tenant)
	t.mappings.Add(ctx, fanin.Every)
	t.nodes.Add(ctx, fanin.Every)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for wanted := (chan netip.Addr)(nil); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if t.mappings.Synced(fanin.Every) && t.nodes.Synced(fanin.Every) && t.nodes.Get(client.ObjectKey{Name: t.node}) != nil {
				wanted = t.wanted // from now on it is known who has none
				look.Stop()
			}
		case address := <-wanted:
			if err := t.ask(ctx, address); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Info("address not made known to the peer", "address", address, "reason", err.Error())
			}
		}
	}
}

func (t *translator) tunnelChanged(_, after client.Object) {
	endpoint, _ := after.(*netv1alpha1.TunnelEndpoint)
	t.mu.Lock()
	same := true
	switch {
	case endpoint == nil || endpoint.Spec.ClusterIdentity.ClusterID != t.peer: // what pods show stays: nothing is known to be wrong about it
	default:
		same = t.tunnel != nil && networksOf(t.tunnel) == networksOf(&endpoint.Spec)
		t.tunnel = &endpoint.Spec
	}
	t.mu.Unlock()
	if !same {
		t.changed()
	}
}

// networksOf is what matters here of a TunnelEndpoint.
func networksOf(spec *netv1alpha1.TunnelEndpointSpec) [8]string {
	return [8]string{
		string(spec.LocalPodCIDR), spec.LocalNATPodCIDR, string(spec.LocalExternalCIDR), spec.LocalNATExternalCIDR,
		string(spec.RemotePodCIDR), spec.RemoteNATPodCIDR, string(spec.RemoteExternalCIDR), spec.RemoteNATExternalCIDR,
	}
}

func (t *translator) mappingChanged(before, after client.Object) {
	old, _ := before.(*netv1alpha1.IPMapping)
	now, _ := after.(*netv1alpha1.IPMapping)
	t.mu.Lock()
	if old != nil {
		if address, err := netip.ParseAddr(old.Spec.Address); err == nil && t.mapped[address] != nil && t.mapped[address].Name == old.Name {
			delete(t.mapped, address)
		}
	}
	if now != nil && (len(now.Spec.ClusterIDs) == 0 || slices.Contains(now.Spec.ClusterIDs, t.peer)) {
		if address, err := netip.ParseAddr(now.Spec.Address); err == nil {
			t.mapped[address] = now
			delete(t.asked, address)
		}
	}
	t.mu.Unlock()
	if old == nil || now == nil || old.Status.PeerAddresses[t.peer] != now.Status.PeerAddresses[t.peer] {
		t.changed()
	}
}

// ToLocal is the address of a remote pod as it is seen here.
func (t *translator) ToLocal(address netip.Addr) (netip.Addr, error) {
	if t.off {
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
		if seen, is := swapped(address, network[0], network[1]); is {
			return seen, nil
		}
	}
	return netip.Addr{}, project.ErrNoCounterpart
}

// ToRemote is the address of a local endpoint as the peer sees it.
func (t *translator) ToRemote(address netip.Addr) (netip.Addr, error) {
	if t.off {
		return address, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tunnel == nil {
		return netip.Addr{}, errNotAgreed
	}
	if seen, is := swapped(address, string(t.tunnel.LocalPodCIDR), t.tunnel.LocalNATPodCIDR); is {
		return seen, nil
	}
	if mapping := t.mapped[address]; mapping != nil {
		if seen, err := netip.ParseAddr(mapping.Status.PeerAddresses[t.peer]); err == nil {
			return seen, nil
		}
		if meta.IsStatusConditionFalse(mapping.Status.Conditions, netv1alpha1.ConditionReady) {
			return netip.Addr{}, project.ErrNoCounterpart // nor ever, it says
		}
	}
	if !address.Is4() || address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() {
		return netip.Addr{}, project.ErrNoCounterpart
	}
	if len(t.asked) >= mostMappings {
		maps.DeleteFunc(t.asked, func(_ netip.Addr, since time.Time) bool { return time.Since(since) > askedFor })
	}
	if len(t.asked) < mostMappings && time.Since(t.asked[address]) > mapAgain {
		select {
		case t.wanted <- address:
			t.asked[address] = time.Now()
		default:
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: %s has no address in the external network", errNotAgreed, address)
}

// swapped translates an address from one network to another of the same size; "None" is the same network.
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

// ask makes an IPMapping for an address. It goes with the virtual node.
func (t *translator) ask(ctx context.Context, address netip.Addr) error {
	t.mu.RLock()
	mapped := t.mapped[address] != nil
	t.mu.RUnlock()
	node := t.nodes.Get(client.ObjectKey{Name: t.node})
	if mapped || node == nil {
		return nil
	}
	sum := sha256.Sum256([]byte(address.String()))
	err := t.client.Create(ctx, &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{
			Name:            t.node[:min(len(t.node), 200)] + "-" + hex.EncodeToString(sum[:5]),
			Labels:          map[string]string{labels.AppPartOf: labels.PartOf, labels.RemoteClusterID: t.peer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID()}},
		},
		Spec: netv1alpha1.IPMappingSpec{Address: address.String(), ClusterIDs: []string{t.peer}},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
