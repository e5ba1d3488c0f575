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
	// creationOwner owns the fields that are written only when the node is created.
	creationOwner = client.FieldOwner(labels.OwnerVirtualKubelet + "-birth")
	owner         = client.FieldOwner(labels.OwnerVirtualKubelet)
	// allocationTimeout is how long a new node waits for the range that Kubernetes may assign to it. An allocator that observes another change of a
	// node without observing its own assignment assigns a second range, fails, and reports CIDRAssignmentFailed. Clusters without allocator assign none.
	allocationTimeout = time.Second
)

// sync brings the node to the state that follows from the slice and the probes.
func (n *Node) sync(ctx context.Context) error {
	tunnel, err := n.tunnel(ctx)
	if err != nil {
		return err
	}
	if n.options.OnNetwork != nil { // first, because pods need it whether the node can be written or not
		up, _ := (&nodeInputs{checkNetwork: n.options.CheckNetwork, tunnel: tunnel}).network()
		n.options.OnNetwork(up)
	}
	if n.serverVersion == "" {
		return nil // followVersion will send it
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
		return nil // the cache does not have our last write yet
	}
	state, message := n.prober.result()
	action := next(slice, node, state)
	inputs := &nodeInputs{
		name: n.options.NodeName, clusterID: n.options.ClusterID, address: n.options.NodeIP, port: n.options.KubeletPort, version: n.serverVersion,
		storage: n.options.Storage, extraLabels: n.options.ExtraLabels, extraAnnotations: n.options.ExtraAnnotations, reach: state, reachMessage: message,
		checkNetwork: n.options.CheckNetwork, tunnel: tunnel,
	}
	if n.options.Failing != nil {
		inputs.failing = n.options.Failing()
	}
	inputs.closed = closedBy(slice)
	if slice.Status.Phase == sharingv1alpha1.SliceAccepted {
		inputs.granted = describedBy(&slice.Status, node)
	}
	switch action {
	case probeNow:
		n.prober.probeNow()
		return nil
	case register:
		if node, err = n.register(ctx, inputs); err != nil {
			return err
		}
		n.registered = time.Now()
		time.AfterFunc(allocationTimeout, n.requeue)
	case update:
		if node.Spec.PodCIDR == "" && time.Since(n.registered) < allocationTimeout {
			return nil // the range, or the timeout, requeues the node
		}
		// The taint first: no pod may be scheduled between a status that is Ready and the taint.
		err = errors.Join(n.applyTaint(ctx, node, inputs), n.applyMeta(ctx, node, inputs), n.applyStatus(ctx, node, inputs))
	case hold:
		inputs.granted = lastGrant(node)
		err = errors.Join(n.applyTaint(ctx, node, inputs), n.applyStatus(ctx, node, inputs))
	case observe:
		inputs.granted, inputs.leaving, inputs.closed = lastGrant(node), true, closure{}
		err = n.applyStatus(ctx, node, inputs)
	default:
		return nil
	}
	if n.lease == nil {
		err = errors.Join(err, n.renewLease(ctx, node))
	}
	// The node is gone, or another node has its name. The watch delivers that; an update must not create a node.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("node was deleted or replaced", "reason", err.Error())
		return nil
	}
	return err
}

// slice returns the slice from the cache; nil if it is not there yet, or the peering has ended.
func (n *Node) slice(ctx context.Context) (*sharingv1alpha1.ResourceSlice, error) {
	var slice sharingv1alpha1.ResourceSlice
	err := n.cache.Get(ctx, client.ObjectKey{Namespace: n.options.Namespace, Name: n.options.SliceName}, &slice)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &slice, nil
}

// tunnel returns the tunnel to the remote cluster from the cache; nil if there is none, or if the network is not checked.
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

// node returns the node from the cache; nil if there is none.
func (n *Node) node(ctx context.Context) (*corev1.Node, error) {
	var node corev1.Node
	err := n.cache.Get(ctx, client.ObjectKey{Name: n.options.NodeName}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case node.Labels[labels.Type] != labels.TypeVirtualNode || node.Labels[labels.RemoteClusterID] != n.options.ClusterID:
		return nil, fmt.Errorf("node %s exists and is not the virtual node of cluster %s; delete or rename it", node.Name, n.options.ClusterID)
	}
	return &node, nil
}

// behind reports whether the cache does not have our last write yet. Compared with a stale copy, the same write would be sent again.
func (n *Node) behind(node *corev1.Node) bool {
	if node == nil || n.writtenVersion == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, *n.writtenVersion)
	return err == nil && order < 0
}

// register creates the node. It returns only name and UID, because the node has nothing else yet. The rest follows once the node has its range, see
// allocationTimeout.
func (n *Node) register(ctx context.Context, inputs *nodeInputs) (*corev1.Node, error) {
	n.writtenMeta, n.writtenStatus, n.lease, n.writtenVersion = nil, nil, nil, nil
	text, err := json.Marshal(inputs.initial())
	if err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	var created corev1.Node
	if err := json.Unmarshal(text, &created); err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	// Created, not applied: a node that has the name and is not in the cache yet may be that of another cluster.
	if err := n.client.Create(ctx, &created, creationOwner); err != nil {
		return nil, fmt.Errorf("register node: %w", err)
	}
	log.FromContext(ctx).Info("node registered", "node", inputs.name)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inputs.name, UID: created.UID}}, nil
}

// applyMeta writes labels and annotations if one is missing, or if one that we wrote is no longer desired.
func (n *Node) applyMeta(ctx context.Context, node *corev1.Node, inputs *nodeInputs) error {
	intent := inputs.meta(node.UID)
	if contains(node.Labels, inputs.nodeLabels()) && contains(node.Annotations, inputs.nodeAnnotations()) && equality.Semantic.DeepEqual(n.writtenMeta, intent) {
		return nil
	}
	sent := inputs.meta(node.UID) // the client writes the response into its argument
	if err := n.client.Apply(ctx, sent, owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("label node: %w", err)
	}
	n.writtenMeta, n.writtenVersion = intent, sent.ResourceVersion
	return nil
}

// applyTaint writes or removes our taint. Kubernetes and administrators write the same list, which is one value, so the write names the version of the
// node that it changes; if that is old, the event of the newer one comes.
func (n *Node) applyTaint(ctx context.Context, node *corev1.Node, inputs *nodeInputs) error {
	taints, changed := inputs.closed.taints(node.Spec.Taints)
	if !changed {
		return nil
	}
	sent := node.DeepCopy()
	sent.Spec.Taints = taints
	if err := n.client.Patch(ctx, sent, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}), owner); err != nil {
		return fmt.Errorf("taint node: %w", err)
	}
	log.FromContext(ctx).Info("pods of this cluster", "takesNew", inputs.closed.reason == "", "reason", inputs.closed.message)
	n.writtenVersion = &sent.ResourceVersion
	return nil
}

// applyStatus writes the status if it differs.
func (n *Node) applyStatus(ctx context.Context, node *corev1.Node, inputs *nodeInputs) error {
	status := inputs.status()
	kept := equality.Semantic.DeepEqual(n.writtenStatus, &status)
	if n.writtenStatus == nil { // after a restart: the node may show resources of an earlier grant
		kept = len(node.Status.Capacity) == len(status.Capacity)
	}
	if kept && statusCurrent(&node.Status, &status) {
		n.writtenStatus = &status
		return nil
	}
	sent := inputs.status() // the client writes the response into its argument
	intent := statusIntent(coreapply.Node(inputs.name).WithUID(node.UID), &node.Status, &sent, time.Now())
	if err := n.client.Status().Apply(ctx, intent, owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("write status of node: %w", err)
	}
	n.writtenStatus, n.writtenVersion = &status, intent.ResourceVersion
	return nil
}

// keepLease renews the lease if the node exists.
func (n *Node) keepLease(ctx context.Context) error {
	node, err := n.node(ctx)
	if err != nil || node == nil {
		return err
	}
	return n.renewLease(ctx, node)
}

// renewLease renews the lease, which proves that this process runs. It reads the lease only if another client wrote it.
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
	n.lease = nil // until the write has succeeded
	lease.Namespace, lease.Name = leaseNamespace, node.Name
	// The garbage collector deletes the lease with the node.
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
