// SPDX-License-Identifier: Apache-2.0

// Package networks is how two clusters see each other's networks: the addresses that the one has for pods and nodes of the other, and what it
// believes of the connection.
//
// It computes addresses as the documentation describes them, not with the product's code. Proof: test/network, which sends packets to them.
package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
)

// View is how two clusters see each other's networks: the tunnel endpoint of there in here.
type View struct {
	Here, There *env.Cluster
	Spec        network.TunnelEndpointSpec
	MTU         int32  // from the status of the tunnel
	Lanes       string // state of the lanes, from the status of the tunnel
	Carrier     string // of the lane in use
}

// See reads the tunnel endpoint that the cluster has of another.
func See(c, there *env.Cluster) (View, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var all network.TunnelEndpointList
	if err := c.API.List(ctx, &all); err != nil {
		return View{}, fmt.Errorf("list tunnel endpoints of %s: %w", c.Name, err)
	}
	for _, found := range all.Items {
		if found.Spec.ClusterIdentity.ClusterName == there.Name {
			return View{
				c, there, found.Spec, found.Status.Connection.MTU, found.Status.Connection.StatusMessage,
				found.Status.Connection.PeerConfiguration["carrier"],
			}, nil
		}
	}
	return View{}, fmt.Errorf("%s has no tunnel endpoint of %s", c.Name, there.Name)
}

// swap writes the network of to over that of from; remapped is None if there is nothing to do.
func swap(address netip.Addr, from network.CIDR, remapped string) (netip.Addr, error) {
	if remapped == "" || remapped == "None" {
		return address, nil
	}
	old, err := netip.ParsePrefix(string(from))
	if err != nil {
		return netip.Addr{}, err
	}
	to, err := netip.ParsePrefix(remapped)
	if err != nil {
		return netip.Addr{}, err
	}
	if !old.Contains(address) || old.Bits() != to.Bits() {
		return netip.Addr{}, fmt.Errorf("%s cannot be moved from %s to %s", address, old, to)
	}
	host, prefix := address.As4(), to.Masked().Addr().As4()
	for bit := range to.Bits() {
		mask := byte(0x80) >> (bit % 8)
		host[bit/8] = host[bit/8]&^mask | prefix[bit/8]&mask
	}
	return netip.AddrFrom4(host), nil
}

// Pod is the address that here has for a pod of there.
func (v View) Pod(address netip.Addr) (netip.Addr, error) {
	return swap(address, v.Spec.RemotePodCIDR, v.Spec.RemoteNATPodCIDR)
}

// Mapped is the address that here has for one of the external network of there.
func (v View) Mapped(external netip.Addr) (netip.Addr, error) {
	return swap(external, v.Spec.RemoteExternalCIDR, v.Spec.RemoteNATExternalCIDR)
}

// Source is the address that there sees of a pod of here.
func (v View) Source(pod netip.Addr) (netip.Addr, error) {
	return swap(pod, v.Spec.LocalPodCIDR, v.Spec.LocalNATPodCIDR)
}

// NodeSource is the address that there sees of a node of here.
func (v View) NodeSource(node *env.Node) (netip.Addr, error) {
	external, err := external(node, v.Spec.LocalPodCIDR, v.Spec.LocalExternalCIDR)
	if err != nil {
		return netip.Addr{}, err
	}
	return swap(external, v.Spec.LocalExternalCIDR, v.Spec.LocalNATExternalCIDR)
}

// Node is the address that here has for a node of there.
func (v View) Node(node *env.Node) (netip.Addr, error) {
	external, err := external(node, v.Spec.RemotePodCIDR, v.Spec.RemoteExternalCIDR)
	if err != nil {
		return netip.Addr{}, err
	}
	return v.Mapped(external)
}

// external is the node's address in the external network: the first one of its pod network, moved (docs/adr/0013-network-fabric.md).
func external(n *env.Node, pods, external network.CIDR) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var node corev1.Node
	if err := n.Cluster.API.Get(ctx, client.ObjectKey{Name: n.Name}, &node); err != nil {
		return netip.Addr{}, err
	}
	own, err := netip.ParsePrefix(node.Spec.PodCIDR)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("pod network of node %s: %w", n.Name, err)
	}
	return swap(own.Masked().Addr(), pods, string(external))
}

// Doubt sets the network condition of another cluster to Pending and changes an annotation, so that the controller reconciles: a change of
// the status alone triggers nothing.
func Doubt(c, there *env.Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var fc discovery.ForeignCluster
		if err := c.API.Get(ctx, client.ObjectKey{Name: there.Name}, &fc); err != nil {
			return err
		}
		for i := range fc.Status.PeeringConditions {
			if condition := &fc.Status.PeeringConditions[i]; condition.Type == discovery.NetworkStatus {
				condition.Status, condition.Message = discovery.StatusPending, "a test doubts it"
				if err := c.API.Status().Update(ctx, &fc); err != nil {
					return err
				}
				look := fmt.Sprintf(`{"metadata":{"annotations":{"test.liqo.io/look":"%d"}}}`, time.Now().UnixNano())
				return c.API.Patch(ctx, &fc, client.RawPatch(types.MergePatchType, []byte(look)))
			}
		}
		return errors.New(c.Name + " has no network condition of " + there.Name)
	})
}

// Condition returns the network condition of another cluster: status, reason and message.
func Condition(c, there *env.Cluster) (discovery.PeeringCondition, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var all discovery.ForeignClusterList
	if err := c.API.List(ctx, &all); err != nil {
		return discovery.PeeringCondition{}, err
	}
	for _, fc := range all.Items {
		if fc.Name != there.Name {
			continue
		}
		for _, condition := range fc.Status.PeeringConditions {
			if condition.Type == discovery.NetworkStatus {
				return condition, nil
			}
		}
	}
	return discovery.PeeringCondition{}, errors.New(c.Name + " has no network condition of " + there.Name)
}
