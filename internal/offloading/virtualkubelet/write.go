// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

const (
	// leaseNamespace is where Kubernetes keeps the leases of nodes.
	leaseNamespace = "kube-node-lease"
	// birthOwner speaks once, when the node is made.
	birthOwner = client.FieldOwner(labels.OwnerVirtualKubelet + "-birth")
	owner      = client.FieldOwner(labels.OwnerVirtualKubelet)
)

// sync brings the node to what the slice and the probes say.
func (n *Node) sync(ctx context.Context) error {
	if n.serverVersion == "" {
		return nil // it will be told
	}
	slice, err := n.slice(ctx)
	if err != nil || slice == nil {
		return err
	}
	node, err := n.node(ctx)
	if err != nil {
		return err
	}
	if n.behind(node) {
		return nil // what we wrote last is on its way
	}
	state, message := n.prober.result()
	move := next(slice, node, state)
	drawn := &picture{
		name: n.options.NodeName, clusterID: n.options.ClusterID, address: n.options.NodeIP, port: n.options.KubeletPort, version: n.serverVersion,
		extraLabels: n.options.ExtraLabels, extraAnnotations: n.options.ExtraAnnotations, reach: state, reachMessage: message,
		checkNetwork: n.options.CheckNetwork,
	}
	if drawn.tunnel, err = n.tunnel(ctx); err != nil {
		return err
	}
	if slice.Status.Phase == sharingv1alpha1.SliceAccepted {
		drawn.granted = &slice.Status
	}
	switch move {
	case hurry:
		n.prober.soon()
		return nil
	case register:
		if node, err = n.register(ctx, drawn); err != nil {
			return err
		}
		err = errors.Join(n.label(ctx, node, drawn), n.show(ctx, node, drawn))
	case update:
		err = errors.Join(n.label(ctx, node, drawn), n.show(ctx, node, drawn))
	case observe:
		drawn.granted, drawn.leaving = remains(node), true
		err = n.show(ctx, node, drawn)
	default:
		return nil
	}
	if n.lease == nil {
		err = errors.Join(err, n.renewLease(ctx, node))
	}
	// Gone, or somebody else's of that name: the watch will tell, and a node is not made by the way.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("node is not the one that it was", "reason", err.Error())
		return nil
	}
	return err
}

// slice as the cache has it; nil if there is none: not heard of it yet, or the peering has ended.
func (n *Node) slice(ctx context.Context) (*sharingv1alpha1.ResourceSlice, error) {
	var slice sharingv1alpha1.ResourceSlice
	err := n.cache.Get(ctx, client.ObjectKey{Namespace: n.options.Namespace, Name: n.options.SliceName}, &slice)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &slice, nil
}

// tunnel to the remote cluster as the cache has it; nil if there is none, or if nobody wants to know.
func (n *Node) tunnel(ctx context.Context) (*netv1alpha1.TunnelEndpoint, error) {
	if !n.options.CheckNetwork {
		return nil, nil
	}
	var all netv1alpha1.TunnelEndpointList
	if err := n.cache.List(ctx, &all, client.InNamespace(n.options.Namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if all.Items[i].Spec.ClusterIdentity.ClusterID == n.options.ClusterID {
			return &all.Items[i], nil
		}
	}
	return nil, nil
}

// node as the cache has it; nil if there is none.
func (n *Node) node(ctx context.Context) (*corev1.Node, error) {
	var node corev1.Node
	err := n.cache.Get(ctx, client.ObjectKey{Name: n.options.NodeName}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case node.Labels[labels.Type] != labels.TypeVirtualNode || node.Labels[labels.RemoteClusterID] != n.options.ClusterID:
		return nil, fmt.Errorf("node %s exists and does not stand for cluster %s; delete or rename it", node.Name, n.options.ClusterID)
	}
	return &node, nil
}

// behind tells whether the cache has not heard of our last write: compared with that, it would be sent again.
func (n *Node) behind(node *corev1.Node) bool {
	if node == nil || n.written == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, *n.written)
	return err == nil && order < 0
}

// register makes the node. What is known of it then is its UID, and that it has nothing yet.
func (n *Node) register(ctx context.Context, drawn *picture) (*corev1.Node, error) {
	n.told, n.shown, n.lease, n.written = nil, nil, nil, nil
	text, err := json.Marshal(drawn.birth())
	if err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	var born corev1.Node
	if err := json.Unmarshal(text, &born); err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	// Created, not applied: what has the name already, unknown to the cache, may stand for another cluster.
	if err := n.client.Create(ctx, &born, birthOwner); err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	log.FromContext(ctx).Info("node registered", "node", drawn.name)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: drawn.name, UID: born.UID}}, nil
}

// label writes labels and annotations, if they are not there, or if one that we wrote is no longer to be there.
func (n *Node) label(ctx context.Context, node *corev1.Node, drawn *picture) error {
	intent := drawn.meta(node.UID)
	if within(drawn.nodeLabels(), node.Labels) && within(drawn.extraAnnotations, node.Annotations) && equality.Semantic.DeepEqual(n.told, intent) {
		return nil
	}
	sent := drawn.meta(node.UID) // the answer is written into what was sent
	if err := n.client.Apply(ctx, sent, owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("label node: %w", err)
	}
	n.told, n.written = intent, sent.ResourceVersion
	return nil
}

// show writes the status, if it is not there.
func (n *Node) show(ctx context.Context, node *corev1.Node, drawn *picture) error {
	status := drawn.status()
	kept := equality.Semantic.DeepEqual(n.shown, &status)
	if n.shown == nil { // after a restart: what is there may be of a grant that is over
		kept = len(node.Status.Capacity) == len(status.Capacity)
	}
	if kept && shows(&node.Status, &status) {
		n.shown = &status
		return nil
	}
	sent := drawn.status() // the answer is written into what was sent
	intent := statusIntent(coreapply.Node(drawn.name).WithUID(node.UID), &node.Status, &sent, time.Now())
	if err := n.client.Status().Apply(ctx, intent, owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("write status of node: %w", err)
	}
	n.shown, n.written = &status, intent.ResourceVersion
	return nil
}

// keepLease renews the lease of the node, if there is one.
func (n *Node) keepLease(ctx context.Context) error {
	node, err := n.node(ctx)
	if err != nil || node == nil {
		return err
	}
	return n.renewLease(ctx, node)
}

// renewLease says that this process lives. The lease is read only if somebody else wrote it.
func (n *Node) renewLease(ctx context.Context, node *corev1.Node) error {
	if n.lease == nil {
		n.lease = &coordinationv1.Lease{}
		err := n.client.Get(ctx, client.ObjectKey{Namespace: leaseNamespace, Name: node.Name}, n.lease)
		if client.IgnoreNotFound(err) != nil {
			n.lease = nil
			return fmt.Errorf("read lease: %w", err)
		}
	}
	lease := n.lease
	n.lease = nil // until it is known that this worked
	lease.Namespace, lease.Name = leaseNamespace, node.Name
	// With the node, the lease goes.
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	lease.Spec.HolderIdentity = new(node.Name)
	lease.Spec.LeaseDurationSeconds = new(int32(n.options.LeaseDuration.Seconds()))
	lease.Spec.RenewTime = new(metav1.NowMicro())
	write := func() error { return n.client.Update(ctx, lease) }
	if lease.ResourceVersion == "" {
		write = func() error { return n.client.Create(ctx, lease) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	n.lease = lease
	return nil
}
