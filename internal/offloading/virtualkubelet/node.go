// SPDX-License-Identifier: Apache-2.0

// Package virtualkubelet is the process behind one virtual node: it registers the node that a ResourceSlice became, keeps
// its capacity and conditions current, renews its lease, and probes the provider. nodeobject.go draws the node
// from values; the rest sends what differs.
//
// It must not know who wrote the slice or the identity, and takes nothing away: the node is drained and removed by the controller
// manager. Its proof is node_test.go, against two real API servers.
package virtualkubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:namespace=kube-node-lease,groups=coordination.k8s.io,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:namespace=liqo-tenant,groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get

// leaseNamespace is where Kubernetes keeps the leases of nodes.
const leaseNamespace = "kube-node-lease"

// Options of one virtual node.
type Options struct {
	NodeName, Namespace, SliceName       string
	ClusterID                            string
	NodeIP                               string
	Version                              string
	ExtraLabels, ExtraAnnotations        map[string]string
	LeaseDuration                        time.Duration
	PingInterval, PingRetry, PingTimeout time.Duration
	Scheme                               *runtime.Scheme
}

// Node is one virtual node. It holds no package state: several may run in one process.
type Node struct {
	options Options
	client  client.Client
	cache   cache.Cache
	prober  *prober
	kick    chan struct{}
	holder  string
}

// New prepares a node. cfg is the cluster that the node is registered in.
func New(cfg *rest.Config, o Options) (*Node, error) {
	api, err := client.New(cfg, client.Options{Scheme: o.Scheme})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	only := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	watched, err := cache.New(cfg, cache.Options{
		Scheme: o.Scheme, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&sharingv1alpha1.ResourceSlice{}: {Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: only(o.SliceName)}}},
			&corev1.Node{}:                   {Field: only(o.NodeName)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of the local cluster: %w", err)
	}
	n := &Node{options: o, client: api, cache: watched, kick: make(chan struct{}, 1), holder: o.NodeName}
	n.prober = &prober{
		local: api, scheme: o.Scheme, secret: client.ObjectKey{Namespace: o.Namespace, Name: remote.SecretName(o.ClusterID)},
		interval: o.PingInterval, retry: o.PingRetry, timeout: o.PingTimeout, changed: n.again, wake: make(chan struct{}, 1),
	}
	return n, nil
}

// again asks for another look.
func (n *Node) again() {
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// Run keeps the node until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- n.cache.Start(ctx) }()
	for _, object := range []client.Object{&sharingv1alpha1.ResourceSlice{}, &corev1.Node{}} {
		informer, err := n.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { n.again() },
			UpdateFunc: func(any, any) { n.again() },
			DeleteFunc: func(any) { n.again() },
		}); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	go n.prober.run(ctx)
	if !n.cache.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	renew := time.NewTicker(n.options.LeaseDuration / 4)
	defer renew.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-n.kick:
		case <-retry.C:
		case <-renew.C:
			if err := n.renewLease(ctx); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "lease of the node not renewed")
			}
			continue
		}
		if err := n.sync(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "node not up to date")
			retry.Reset(time.Second)
		}
	}
}

// Synced tells whether the node's objects have been read.
func (n *Node) Synced(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return n.cache.WaitForCacheSync(ctx)
}

// sync brings the node to what the slice and the probes say.
func (n *Node) sync(ctx context.Context) error {
	var slice sharingv1alpha1.ResourceSlice
	err := n.cache.Get(ctx, client.ObjectKey{Namespace: n.options.Namespace, Name: n.options.SliceName}, &slice)
	switch {
	case apierrors.IsNotFound(err):
		return nil // not heard of it yet, or the peering has ended: either way there is nothing to register
	case err != nil:
		return err
	case slice.DeletionTimestamp != nil || slice.Status.Phase == sharingv1alpha1.SliceRefused:
		return nil // the controller manager drains and removes the node
	}
	node, err := n.live(ctx)
	if err != nil {
		return err
	}
	state, message := n.prober.result()
	if state == reachUnknown && slice.Status.Phase == sharingv1alpha1.SliceAccepted {
		n.prober.soon() // a grant proves that there is an identity by now
	}
	if node == nil && (slice.Status.Phase != sharingv1alpha1.SliceAccepted || state != reachable) {
		return nil // a node is worth showing once it can run something
	}
	drawn := &picture{
		name: n.options.NodeName, clusterID: n.options.ClusterID, address: n.options.NodeIP, version: n.options.Version,
		extraLabels: n.options.ExtraLabels, extraAnnotations: n.options.ExtraAnnotations, reach: state, reachMessage: message,
	}
	if slice.Status.Phase == sharingv1alpha1.SliceAccepted {
		drawn.granted = &slice.Status
	}
	return n.write(ctx, node, drawn)
}

// live is the node as the cache has it; nil if there is none.
func (n *Node) live(ctx context.Context) (*corev1.Node, error) {
	var node corev1.Node
	err := n.cache.Get(ctx, client.ObjectKey{Name: n.options.NodeName}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case node.Labels[labels.Type] != labels.TypeVirtualNode || node.Labels[labels.RemoteClusterID] != n.options.ClusterID:
		return nil, fmt.Errorf("node %s exists and does not stand for cluster %s; delete or rename it", node.Name, n.options.ClusterID)
	case node.DeletionTimestamp != nil:
		return nil, errors.New("the node is being deleted")
	}
	return &node, nil
}

// write sends what differs.
func (n *Node) write(ctx context.Context, node *corev1.Node, drawn *picture) error {
	forced := []client.ApplyOption{client.ForceOwnership, client.FieldOwner(labels.OwnerVirtualKubelet)}
	if node == nil {
		if err := n.client.Apply(ctx, drawn.birth(), client.FieldOwner(labels.OwnerVirtualKubelet+"-birth")); err != nil {
			return fmt.Errorf("register node: %w", err)
		}
		node = &corev1.Node{}
		log.FromContext(ctx).Info("node registered", "node", drawn.name)
	}
	if !within(drawn.nodeLabels(), node.Labels) || !within(drawn.extraAnnotations, node.Annotations) || n.stale(node, drawn) {
		if err := n.client.Apply(ctx, drawn.meta(), forced...); err != nil {
			return fmt.Errorf("label node: %w", err)
		}
	}
	status := drawn.status()
	if same(&node.Status, &status) {
		return nil
	}
	if err := n.client.Status().Apply(ctx, statusIntent(drawn.name, &node.Status, &status, time.Now()), client.ForceOwnership, client.FieldOwner(labels.OwnerVirtualKubelet)); err != nil {
		return fmt.Errorf("write status of node: %w", err)
	}
	return n.renewLease(ctx)
}

// stale tells whether the node still has a label that the provider no longer sends.
func (n *Node) stale(node *corev1.Node, drawn *picture) bool {
	_, has := node.Labels[labels.StorageAvailable]
	_, should := drawn.nodeLabels()[labels.StorageAvailable]
	return has && !should
}

func within(wanted, have map[string]string) bool {
	for key, value := range wanted {
		if have[key] != value {
			return false
		}
	}
	return true
}

// renewLease says that this process lives, if there is a node to say it of.
func (n *Node) renewLease(ctx context.Context) error {
	var node corev1.Node
	if err := n.cache.Get(ctx, client.ObjectKey{Name: n.options.NodeName}, &node); err != nil {
		return client.IgnoreNotFound(err)
	}
	now := ptr.To(metav1.NewMicroTime(time.Now()))
	var lease coordinationv1.Lease
	err := n.client.Get(ctx, client.ObjectKey{Namespace: leaseNamespace, Name: n.options.NodeName}, &lease)
	if apierrors.IsNotFound(err) {
		return n.client.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: leaseNamespace, Name: n.options.NodeName,
				// With the node, the lease goes.
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.holder, LeaseDurationSeconds: ptr.To(int32(n.options.LeaseDuration.Seconds())), RenewTime: now},
		})
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &n.holder, now
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(n.options.LeaseDuration.Seconds()))
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	return n.client.Update(ctx, &lease)
}
