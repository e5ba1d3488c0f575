// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/reflection/checked"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Client rates per peer. They let a burst of a thousand pods pass, and keep a runaway loop from overloading an API server.
const (
	qps, burst = 1000, 4000
)

// Options of the reflection to one peer.
type Options struct {
	// Namespace is the tenant namespace of the peer, NamespaceMap the name of the object in it that lists the namespaces offloaded to the peer.
	Namespace, NamespaceMap string
	// Mapping holds the identities of the two clusters. Its namespaces are empty.
	Mapping project.NamespaceMapping
	// RemoteName is the name of the peer, for metrics.
	RemoteName string
	// HostIP is the address that pods report as that of their node.
	HostIP string
	// Workers is the number of objects reconciled at once, by the flag of their kind. 0: the kind is not reflected. Missing: the default.
	Workers map[string]int
	// ReflectIPs makes addresses of endpoints known to the peer, and shows the addresses of remote pods here.
	ReflectIPs bool
	// Translator translates addresses between the clusters. It returns an error for those that it cannot translate yet.
	Translator project.Translator
	// APIServer returns how remote pods reach the API server of this cluster, or project.ErrNoAPIServer while that is not known. Nil: no remote pod
	// reaches it. Pods in the namespaces that the NamespaceMap excludes never do.
	APIServer func() (project.APIServer, error)
	// UnreachableTimeout is how long the peer may be unreachable before the tolerations of its pods are extended, so that Kubernetes does not replace them.
	// 0: 30 seconds.
	UnreachableTimeout time.Duration
	// FailureLimit is how many pods may fail within ten minutes before Failing reports it. 0: 50.
	FailureLimit int
}

// Engine reflects all namespaces that are offloaded to one peer.
type Engine struct {
	options  Options
	local    client.WithWatch
	remote   remoteCluster
	log      logr.Logger
	recorder *eventRecorder
	counts   *counters

	mappings   *mappings
	references references
	reflectors []*reflector
	pods       *pods
	tokens     *tokens
	events     *remoteEvents
	failures   breaker
	claims     Claims
	// declined is what the peer refuses of claims.
	declined *refusals
}

// New prepares the reflection. cfg connects to this cluster.
func New(cfg *rest.Config, o Options) (*Engine, error) {
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	if o.UnreachableTimeout == 0 {
		o.UnreachableTimeout = defaultUnreachableTimeout
	}
	if o.FailureLimit == 0 {
		o.FailureLimit = defaultFailureLimit
	}
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	local, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	e := &Engine{options: o, local: local, counts: newCounters(&o), log: log.Log.WithName("reflection"), failures: breaker{limit: o.FailureLimit}, declined: newRefusals()}
	e.remote = remoteCluster{scheme: scheme, mapper: mapper, limiter: flowcontrol.NewTokenBucketRateLimiter(qps, burst), opened: make(chan struct{}), since: time.Now()}
	e.recorder = newEventRecorder(local, o.Mapping.NodeName)
	e.mappings = newMappings(e)
	for i := range catalog {
		if workers := o.workers(catalog[i].flag, catalog[i].workers); workers > 0 && (!catalog[i].needsIPs || o.ReflectIPs) {
			e.reflectors = append(e.reflectors, newReflector(e, &catalog[i], workers))
		}
	}
	if workers := o.workers(podFlag, podWorkers); workers > 0 {
		e.pods = newPods(e, workers)
		e.events = newRemoteEvents(e)
		if workers := o.workers(tokenFlag, tokenWorkers); workers > 0 && o.APIServer != nil {
			e.tokens = newTokens(e, workers)
		}
	}
	return e, nil
}

// DefaultWorkers returns the default number of workers by the flag of their kind.
func DefaultWorkers() map[string]int {
	all := map[string]int{podFlag: podWorkers, tokenFlag: tokenWorkers}
	for i := range catalog {
		all[catalog[i].flag] = catalog[i].workers
	}
	return all
}

func (o *Options) workers(flag string, fallback int) int {
	if workers, set := o.Workers[flag]; set {
		return workers
	}
	return fallback
}

// kinds returns a scheme and a mapper of the reflected kinds. With a static mapper, no client needs discovery requests.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, authenticationv1.AddToScheme, vkv1alpha1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for version, names := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion:       {"Pod", "Service", "ConfigMap", "Secret", "Event", "ServiceAccount", "PersistentVolumeClaim"},
		discoveryv1.SchemeGroupVersion:  {"EndpointSlice"},
		networkingv1.SchemeGroupVersion: {"Ingress"},
		vkv1alpha1.GroupVersion:         {"ShadowPod", "ShadowEndpointSlice", "NamespaceMap"},
	} {
		for _, name := range names {
			mapper.Add(version.WithKind(name), meta.RESTScopeNamespace)
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}

// Run reflects until ctx ends. Stopping deletes nothing.
func (e *Engine) Run(ctx context.Context) error {
	var working sync.WaitGroup
	for _, r := range e.reflectors {
		r.run(ctx, &working)
	}
	if e.pods != nil {
		e.pods.run(ctx, &working)
	}
	if e.tokens != nil {
		e.tokens.run(ctx, &working)
	}
	defer registered().observe(e)()
	working.Go(func() { e.recorder.run(ctx) })
	e.mappings.run(ctx)
	<-ctx.Done()
	for _, q := range e.queues() {
		q.close()
	}
	working.Wait()
	return nil
}

// Synced reports whether the caches of the NamespaceMap and of the node's pods are filled.
func (e *Engine) Synced() bool {
	return e.mappings.maps.Synced(e.options.Namespace) && (e.pods == nil || e.pods.local.Synced(""))
}

// apiServer returns how new pods of a mapping reach our API server. Without tokens they do not reach it.
func (e *Engine) apiServer(mapping *mapping) (project.APIServer, error) {
	if e.tokens == nil || !mapping.apiServer.Load() {
		return project.APIServer{}, nil
	}
	return e.options.APIServer()
}

func (e *Engine) queues() []*queue {
	all := e.outboundQueues()
	if e.pods != nil {
		all = append(all, e.pods.inbound)
	}
	return all
}

// outboundQueues returns the queues of what we write to the peer.
func (e *Engine) outboundQueues() (all []*queue) {
	for _, r := range e.reflectors {
		all = append(all, r.queue)
	}
	if e.pods != nil {
		all = append(all, e.pods.outbound)
	}
	if e.tokens != nil {
		all = append(all, e.tokens.queue)
	}
	return all
}

// SetConnection records the connection to the peer and whether the peer is reachable. While it is not, the outbound queues are paused; once it is, they
// retry at once whatever has failed.
func (e *Engine) SetConnection(connection *remote.Connection, reachable bool) {
	switch changed, err := e.remote.setConnection(connection, reachable); {
	case err != nil:
		e.log.Error(err, "could not create the client of the remote cluster: nothing is reflected")
	case changed && reachable:
		for _, q := range e.outboundQueues() {
			q.resume()
		}
		e.mappings.each(func(mapping *mapping) {
			if e.pods != nil {
				e.pods.resumed(mapping.Remote)
			}
		})
	case changed:
		for _, q := range e.outboundQueues() {
			q.pause()
		}
		if e.pods != nil {
			select {
			case e.pods.unreachable <- struct{}{}:
			default:
			}
		}
	}
}

// TranslationChanged makes the engine translate all addresses again: the Translator has new information.
func (e *Engine) TranslationChanged() {
	for _, r := range e.reflectors {
		if r.kind.needsIPs {
			r.enqueueAll()
		}
	}
	if e.pods != nil {
		e.pods.enqueueAll()
	}
}

// remoteCluster is the client of the peer, and whether the peer is reachable.
type remoteCluster struct {
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	limiter flowcontrol.RateLimiter

	mu     sync.Mutex
	http   *http.Client
	client atomic.Pointer[client.WithWatch]
	opened chan struct{} // closed while the peer is reachable
	isOpen bool
	since  time.Time // of isOpen
}

func (f *remoteCluster) setConnection(connection *remote.Connection, reachable bool) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if connection == nil {
		reachable = false
	}
	if reachable {
		// The connection has another HTTP client once the URL or the CA of the peer has changed.
		if shared := connection.HTTPClient(); f.http != shared {
			config := connection.Config()
			// The client shares the connection's HTTP client: that holds one TCP connection for all, and always sends the current token.
			config.RateLimiter = f.limiter
			brief := *shared
			brief.Transport = ssa.LeanApplies(shared.Transport)
			made, err := checked.NewClient(config, &brief, f.scheme, f.mapper)
			if err != nil {
				return false, fmt.Errorf("client of the remote cluster: %w", err)
			}
			f.http = shared
			f.client.Store(&made)
		}
	}
	changed = f.isOpen != reachable
	switch {
	case changed && reachable:
		close(f.opened)
	case changed:
		f.opened = make(chan struct{})
	}
	if changed {
		f.isOpen, f.since = reachable, time.Now()
	}
	return changed, nil
}

// unreachableFor reports whether the peer has been unreachable for at least that long.
func (f *remoteCluster) unreachableFor(least time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.isOpen && time.Since(f.since) >= least
}

func (f *remoteCluster) reachable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isOpen
}

var errUnreachable = errors.New("the remote cluster is unreachable")

// currentClient returns the client, also while the peer is unreachable: the request fails then. The error is errUnreachable before the first connection.
func (f *remoteCluster) currentClient() (client.WithWatch, error) {
	if made := f.client.Load(); made != nil {
		return *made, nil
	}
	return nil, errUnreachable
}

// clientOrNil returns nil before the first connection.
func (f *remoteCluster) clientOrNil() client.Client {
	if made := f.client.Load(); made != nil {
		return *made
	}
	return nil
}

// whenReachable returns a channel that is closed as soon as the peer is reachable, and is closed already if it is.
func (f *remoteCluster) whenReachable() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

// waitForClient waits until the peer is reachable, and returns the client.
func (f *remoteCluster) waitForClient(ctx context.Context) (client.WithWatch, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.whenReachable():
			return f.currentClient()
		}
	}
}
