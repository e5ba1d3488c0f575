// SPDX-License-Identifier: Apache-2.0

package translator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// mappingPlan is how the mappings of the peer change.
type mappingPlan struct {
	// create are the ports of addresses without a mapping, change those of mappings with other ports.
	create, change map[netip.Addr][]netv1alpha1.MappingPort
	// unused are mappings without an endpoint.
	unused []*netv1alpha1.IPMapping
	// left are addresses that get no mapping.
	left map[netip.Addr]bool
}

// planMappings compares endpoints outside the pod network with the mappings. ours reports whether this process may change a mapping: others, such as those
// of administrators, stay as they are.
func planMappings(
	endpoints map[netip.Addr][]netv1alpha1.MappingPort, complete bool, mapped map[netip.Addr]*netv1alpha1.IPMapping, ours func(*netv1alpha1.IPMapping) bool,
) mappingPlan {
	p := mappingPlan{create: map[netip.Addr][]netv1alpha1.MappingPort{}, change: map[netip.Addr][]netv1alpha1.MappingPort{}, left: map[netip.Addr]bool{}}
	count := 0
	for _, mapping := range mapped {
		if ours(mapping) {
			count++
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(endpoints), netip.Addr.Compare) {
		ports, mapping := mappable(endpoints[address]), mapped[address]
		switch {
		case mapping != nil && !ours(mapping):
		case len(ports) == 0:
			p.left[address] = true
		case mapping != nil && slices.Equal(mapping.Spec.Ports, ports):
		case mapping != nil:
			p.change[address] = ports
		case count >= maxMappings:
			p.left[address] = true
		default:
			p.create[address] = ports
			count++
		}
	}
	if !complete {
		return p
	}
	for address, mapping := range mapped {
		if ours(mapping) && len(mappable(endpoints[address])) == 0 {
			p.unused = append(p.unused, mapping)
		}
	}
	return p
}

// maxPorts is what the API allows for one mapping.
const maxPorts = 128

// mappable returns the ports that a mapping can have: those of TCP and UDP, sorted.
func mappable(ports []netv1alpha1.MappingPort) []netv1alpha1.MappingPort {
	all := slices.DeleteFunc(slices.Clone(ports), func(port netv1alpha1.MappingPort) bool {
		return port.Protocol != corev1.ProtocolTCP && port.Protocol != corev1.ProtocolUDP || port.Port < 1 || port.Port > 65535
	})
	slices.SortFunc(all, func(a, b netv1alpha1.MappingPort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	all = slices.Compact(all)
	return all[:min(len(all), maxPorts)]
}

// settle makes the mappings of the peer those that its endpoints need. It deletes one only after unusedTime without an endpoint.
func (t *Translator) settle(ctx context.Context, now time.Time) error {
	node := t.nodes.Get(client.ObjectKey{Name: t.options.Node})
	if node == nil {
		return nil // everything of the node is being deleted
	}
	endpoints, complete := t.endpoints()
	t.mu.Lock()
	if t.tunnel == nil {
		t.mu.Unlock()
		return nil // it is not known which addresses are those of pods
	}
	ours := func(mapping *netv1alpha1.IPMapping) bool { return t.owns(node.GetUID(), mapping) }
	p := planMappings(t.outside(endpoints), complete, t.mapped, ours)
	p.unused = append(p.unused, t.replaced(ours)...)
	changed := !maps.Equal(t.left, p.left)
	t.left = p.left
	t.mu.Unlock()
	if changed {
		t.changed()
	}
	var errs []error
	for address, ports := range p.create {
		errs = append(errs, t.create(ctx, node, address, ports))
	}
	for address, ports := range p.change {
		errs = append(errs, t.change(ctx, address, ports))
	}
	unused := map[string]time.Time{}
	for _, mapping := range p.unused {
		since, known := t.unused[mapping.Name]
		if !known {
			since = now
		}
		if unused[mapping.Name] = since; now.Sub(since) < unusedTime {
			continue
		}
		if err := t.client.Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete the mapping of %s, which no endpoint needs: %w", mapping.Spec.Address, err))
		}
	}
	t.unused = unused
	return errors.Join(errs...)
}

// replaced returns our mappings of addresses for which another one counts. The lock is held.
func (t *Translator) replaced(ours func(*netv1alpha1.IPMapping) bool) (all []*netv1alpha1.IPMapping) {
	for _, mappings := range t.all {
		for _, mapping := range mappings[1:] {
			if ours(mapping) {
				all = append(all, mapping)
			}
		}
	}
	return all
}

// outside returns the endpoints that need a mapping, and the API server if its address was asked for or is mapped. The lock is held.
func (t *Translator) outside(endpoints map[netip.Addr][]netv1alpha1.MappingPort) map[netip.Addr][]netv1alpha1.MappingPort {
	all := map[netip.Addr][]netv1alpha1.MappingPort{}
	for address, ports := range endpoints {
		inside := false
		if t.tunnel != nil {
			_, inside = swapped(address, string(t.tunnel.LocalPodCIDR), t.tunnel.LocalNATPodCIDR)
		}
		if !inside && isHost(address) {
			all[address] = ports
		}
	}
	if server := t.options.APIServer; server.IsValid() && (t.serverAsked || t.mapped[server.Addr()] != nil) {
		// a policy allows no other port without a restriction
		all[server.Addr()] = []netv1alpha1.MappingPort{{Protocol: corev1.ProtocolTCP, Port: int32(server.Port())}}
	}
	return all
}

// isHost reports whether an address may be that of an endpoint.
func isHost(address netip.Addr) bool {
	return address.Is4() && !address.IsLoopback() && !address.IsLinkLocalUnicast() && !address.IsMulticast() && !address.IsUnspecified()
}

// owns reports whether this process made a mapping: it belongs to the virtual node.
func (t *Translator) owns(node types.UID, mapping *netv1alpha1.IPMapping) bool {
	return mapping.Labels[labels.RemoteClusterID] == t.options.ClusterID &&
		slices.ContainsFunc(mapping.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == node })
}

// create creates the mapping of an address. The virtual node owns it, so that it is deleted with the node.
func (t *Translator) create(ctx context.Context, node client.Object, address netip.Addr, ports []netv1alpha1.MappingPort) error {
	sum := sha256.Sum256([]byte(address.String()))
	err := t.client.Create(ctx, &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{
			Name:            t.options.Node[:min(len(t.options.Node), 200)] + "-" + hex.EncodeToString(sum[:5]),
			Labels:          map[string]string{labels.AppPartOf: labels.PartOf, labels.RemoteClusterID: t.options.ClusterID},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.GetName(), UID: node.GetUID()}},
		},
		Spec: netv1alpha1.IPMappingSpec{
			Address: address.String(), ClusterIDs: []string{t.options.ClusterID}, Ports: ports, Restricted: address != t.options.APIServer.Addr(),
		},
	})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create the mapping of %s: %w", address, err)
}

// change writes the ports of a mapping of ours.
func (t *Translator) change(ctx context.Context, address netip.Addr, ports []netv1alpha1.MappingPort) error {
	t.mu.RLock()
	before := t.mapped[address]
	t.mu.RUnlock()
	if before == nil {
		return nil
	}
	after := before.DeepCopy()
	after.Spec.Ports, after.Spec.Restricted = ports, address != t.options.APIServer.Addr()
	if err := t.client.Patch(ctx, after, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the ports of the mapping of %s: %w", address, err)
	}
	return nil
}
