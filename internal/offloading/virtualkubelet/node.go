// SPDX-License-Identifier: Apache-2.0

// Package virtualkubelet is the process of one virtual node: it registers the node for an accepted ResourceSlice, keeps its capacity and conditions
// current, renews its lease, and probes the provider. nodeobject.go and nodelabels.go compute the node and the next step from values, and write.go sends
// what differs. Package kubeletapi is its port.
//
// The package must not know who wrote the slice or the identity, and removes nothing: the controller manager drains and removes the node. It
// is proved by node_test.go, against real API servers, with only the rights of its role.
package virtualkubelet

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/scheme"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:namespace=kube-node-lease,groups=coordination.k8s.io,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:namespace=liqo-tenant,groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get

const (
	// localTimeout bounds all requests of one sync to the local API server.
	localTimeout = 10 * time.Second
	// versionInterval is how often the version of the local API server is read: it may be upgraded while we run.
	versionInterval = 10 * time.Minute
)

// Options of one virtual node.
type Options struct {
	NodeName, Namespace, SliceName string
	ClusterID                      string
	NodeIP                         string
	// KubeletPort is the port of the kubelet API.
	KubeletPort                          int32
	ExtraLabels, ExtraAnnotations        map[string]string
	LeaseDuration                        time.Duration
	PingInterval, PingRetry, PingTimeout time.Duration
	// CheckNetwork makes the node Ready only while the tunnel to the remote cluster is up.
	CheckNetwork bool
	// Storage: claims of pods can have their data in the provider.
	Storage bool
	// OnProbe, if not nil, is called after each probe with the connection, which is nil if there is none yet, and whether the provider
	// answered. It must not block.
	OnProbe func(connection *remote.Connection, answers bool)
	// OnNetwork, if not nil, is called whenever the node is synced, with whether the tunnel to the remote cluster is up; without CheckNetwork it always
	// is. It must not block.
	OnNetwork func(up bool)
	// Failing, if not nil, returns why the node must get no more pods; empty if it may. Requeue is called when that changes.
	Failing func() string
}

// Node is one virtual node. It holds no package state: several may run in one process.
type Node struct {
	options Options
	client  client.Client
	cache   cache.Cache
	api     *discovery.DiscoveryClient
	prober  *prober
	wakeup  chan struct{}
	version chan string
	synced  atomic.Bool

	// What follows belongs to the loop of Run.
	serverVersion string
	lease         *coordinationv1.Lease
	// writtenMeta and writtenStatus are the labels and annotations, and the status without times, that were written last.
	writtenMeta   *coreapply.NodeApplyConfiguration
	writtenStatus *corev1.NodeStatus
	// writtenVersion is the resource version of the node after the last write.
	writtenVersion *string
	// registered is when this process created the node.
	registered time.Time
}

// New prepares a node. cfg is the cluster that the node is registered in.
func New(cfg *rest.Config, o Options) (*Node, error) {
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	// One connection for cache, client and discovery.
	connection, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection to the local cluster: %w", err)
	}
	api, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: connection})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	only := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	watched, err := cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper, HTTPClient: connection, DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&sharingv1alpha1.ResourceSlice{}: {Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: only(o.SliceName)}}},
			&corev1.Node{}:                   {Field: only(o.NodeName)},
			&netv1alpha1.TunnelEndpoint{}: {
				Namespaces: map[string]cache.Config{o.Namespace: {LabelSelector: klabels.SelectorFromSet(klabels.Set{labels.TunnelCluster: o.ClusterID})}},
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of the local cluster: %w", err)
	}
	n := &Node{options: o, client: api, cache: watched, wakeup: make(chan struct{}, 1), version: make(chan string, 1)}
	if n.api, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, connection); err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	n.prober = &prober{
		provider: remote.NewStored(api, scheme, o.Namespace, o.ClusterID),
		interval: o.PingInterval, retry: o.PingRetry, timeout: o.PingTimeout, changed: n.requeue, wake: make(chan struct{}, 1),
		onProbe: o.OnProbe,
	}
	return n, nil
}

// kinds returns the few kinds that this process uses, so that it starts without discovery and stays small.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	known, err := scheme.Of(corev1.AddToScheme, coordinationv1.AddToScheme, netv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme)
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpoint"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpointList"), meta.RESTScopeNamespace) // the cache looks up the list kind as well
	mapper.Add(sharingv1alpha1.GroupVersion.WithKind("ResourceSlice"), meta.RESTScopeNamespace)
	return known, mapper, nil
}

// Requeue writes the node again soon, if it differs.
func (n *Node) Requeue() { n.requeue() }

// requeue schedules a sync.
func (n *Node) requeue() {
	select {
	case n.wakeup <- struct{}{}:
	default:
	}
}

// Run keeps the node until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- n.cache.Start(ctx) }()
	go n.prober.run(ctx)
	go n.followVersion(ctx)
	var filled []toolscache.DoneChecker
	watched := []client.Object{&sharingv1alpha1.ResourceSlice{}, &corev1.Node{}}
	if n.options.CheckNetwork {
		watched = append(watched, &netv1alpha1.TunnelEndpoint{})
	}
	for _, object := range watched {
		informer, err := n.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { n.requeue() },
			UpdateFunc: func(any, any) { n.requeue() },
			DeleteFunc: func(any) { n.requeue() },
		}); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		filled = append(filled, informer.HasSyncedChecker())
	}
	// The cache's own WaitForCacheSync polls every 100 ms, which would delay every new node.
	for _, informer := range filled {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-informer.Done():
		}
	}
	n.synced.Store(true)
	return n.loop(ctx, failed)
}

func (n *Node) loop(ctx context.Context, failed <-chan error) error {
	renew := time.NewTicker(n.options.LeaseDuration / 4)
	defer renew.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	backoff := n.options.PingRetry
	for {
		step := n.sync
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case version := <-n.version:
			n.serverVersion = version
		case <-n.wakeup:
		case <-retry.C:
		case <-renew.C:
			step = n.keepLease
		}
		bounded, cancel := context.WithTimeout(ctx, localTimeout)
		err := step(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.FromContext(ctx).Error(err, "node not synced")
			retry.Reset(backoff)
			backoff = min(2*backoff, n.options.LeaseDuration)
		default:
			backoff = n.options.PingRetry
		}
	}
}

// followVersion sends the version of the local API server to the loop whenever it changes.
func (n *Node) followVersion(ctx context.Context) {
	var last string
	for ctx.Err() == nil {
		wait := versionInterval
		switch server, err := n.api.ServerVersion(); {
		case err != nil:
			wait = n.options.PingRetry
			log.FromContext(ctx).V(1).Info("version of the local API server not read", "reason", err.Error())
		case server.GitVersion != last:
			last = server.GitVersion
			select {
			case n.version <- last:
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// Synced reports whether the cache has been filled.
func (n *Node) Synced() bool { return n.synced.Load() }
