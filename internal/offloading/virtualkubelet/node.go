// SPDX-License-Identifier: Apache-2.0

// Package virtualkubelet is the process behind one virtual node: it registers the node that a ResourceSlice became, keeps
// its capacity and conditions current, renews its lease, and probes the provider. nodeobject.go draws the node
// from values and says what to do about it, write.go sends what differs. streams.go is the kubelet's HTTPS API: what people ask of a pod goes
// on to the provider's API server (streampath.go says how it is called there), what it uses comes back from there.
//
// It must not know who wrote the slice or the identity, and takes nothing away: the node is drained and removed by the controller
// manager. Its proof is node_test.go and streams_test.go, against real API servers, with the rights of the role and no others: from kubectl to a
// kubelet in the other cluster.
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
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:namespace=kube-node-lease,groups=coordination.k8s.io,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:namespace=liqo-tenant,groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get

const (
	// localTimeout is the deadline of all that one look at the node asks of the local API server.
	localTimeout = 10 * time.Second
	// versionInterval is how often the local API server is asked for its version: it may be upgraded while we run.
	versionInterval = 10 * time.Minute
)

// Options of one virtual node.
type Options struct {
	NodeName, Namespace, SliceName string
	ClusterID                      string
	NodeIP                         string
	// KubeletPort is where the API server finds the logs of pods, and the pods themselves.
	KubeletPort                          int32
	ExtraLabels, ExtraAnnotations        map[string]string
	LeaseDuration                        time.Duration
	PingInterval, PingRetry, PingTimeout time.Duration
	// CheckNetwork makes the node Ready only while the tunnel to the remote cluster is up.
	CheckNetwork bool
	// Reached, if not nil, hears after each probe how the connection stands: nil if there is none yet. It must return at once.
	Reached func(connection *remote.Connection, answers bool)
}

// Node is one virtual node. It holds no package state: several may run in one process.
type Node struct {
	options Options
	client  client.Client
	cache   cache.Cache
	api     *discovery.DiscoveryClient
	prober  *prober
	kick    chan struct{}
	version chan string
	synced  atomic.Bool

	// What follows belongs to the loop of Run.
	serverVersion string
	lease         *coordinationv1.Lease
	// told and shown are the last that was written of the node: its labels, and its status without times.
	told  *coreapply.NodeApplyConfiguration
	shown *corev1.NodeStatus
	// written is the node's version since then.
	written *string
}

// New prepares a node. cfg is the cluster that the node is registered in.
func New(cfg *rest.Config, o Options) (*Node, error) {
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	// One connection for all of it.
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
	n := &Node{options: o, client: api, cache: watched, kick: make(chan struct{}, 1), version: make(chan string, 1)}
	if n.api, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, connection); err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	n.prober = &prober{
		local: api, scheme: scheme, secret: client.ObjectKey{Namespace: o.Namespace, Name: remote.SecretName(o.ClusterID)},
		interval: o.PingInterval, retry: o.PingRetry, timeout: o.PingTimeout, changed: n.again, wake: make(chan struct{}, 1),
		reached: o.Reached,
	}
	return n, nil
}

// kinds are those that this process knows: few, so that it starts without asking which there are, and stays small.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, netv1alpha1.AddToScheme, sharingv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpoint"), meta.RESTScopeNamespace)
	mapper.Add(netv1alpha1.GroupVersion.WithKind("TunnelEndpointList"), meta.RESTScopeNamespace) // the cache asks for it, too
	mapper.Add(sharingv1alpha1.GroupVersion.WithKind("ResourceSlice"), meta.RESTScopeNamespace)
	return scheme, mapper, nil
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
			AddFunc:    func(any) { n.again() },
			UpdateFunc: func(any, any) { n.again() },
			DeleteFunc: func(any) { n.again() },
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
	again := n.options.PingRetry
	for {
		step := n.sync
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case version := <-n.version:
			n.serverVersion = version
		case <-n.kick:
		case <-retry.C:
		case <-renew.C:
			step = n.keepLease
		}
		within, cancel := context.WithTimeout(ctx, localTimeout)
		err := step(within)
		cancel()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.FromContext(ctx).Error(err, "node not up to date")
			retry.Reset(again)
			again = min(2*again, n.options.LeaseDuration)
		default:
			again = n.options.PingRetry
		}
	}
}

// followVersion tells the loop which version the local API server has.
func (n *Node) followVersion(ctx context.Context) {
	var last string
	for ctx.Err() == nil {
		wait := versionInterval
		switch server, err := n.api.ServerVersion(); {
		case err != nil:
			wait = n.options.PingRetry
			log.FromContext(ctx).V(1).Info("local API server not asked for its version", "reason", err.Error())
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

// Synced tells whether the node's objects have been read.
func (n *Node) Synced() bool { return n.synced.Load() }
