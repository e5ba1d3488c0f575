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

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Rates, per peer: a burst of a thousand pods must not wait for us, and a loop of ours that went mad must not take an API server down.
const (
	qps, burst = 1000, 4000
)

// Who translates addresses makes those outside the pod networks known to the peer.
// +kubebuilder:rbac:groups=net.liqo.io,resources=ipmappings,verbs=list;watch;create

// Options of the reflection to one peer.
type Options struct {
	// Namespace is the tenant namespace of the peer, and NamespaceMap the one object in it that says what is offloaded there.
	Namespace, NamespaceMap string
	// Mapping is who is who; its namespaces are left empty.
	Mapping project.NamespaceMapping
	// RemoteName is the name of the peer, for metrics.
	RemoteName string
	// HostIP is what pods show as the address of their node.
	HostIP string
	// Workers are, per kind, how many objects are worked on at once. 0: the kind is not reflected. Kinds that are not named have their default.
	Workers map[string]int
	// ReflectIPs tells addresses of pods to the other cluster, and the other way round.
	ReflectIPs bool
	// Translator says which address stands for what. It may not know yet.
	Translator project.Translator
	// APIServer says how pods over there reach the API server of this cluster. It may not know yet, which is the error project.ErrNoAPIServer.
	// Nil: not at all. Nor those of the namespaces that the NamespaceMap excepts.
	APIServer func() (project.APIServer, error)
	// Patience is how long the peer may be silent before its pods are kept from being replaced. 0: 30 seconds.
	Patience time.Duration
}

// Engine reflects all offloaded namespaces to one peer. It holds no package state.
type Engine struct {
	options Options
	local   client.WithWatch
	remote  farSide
	said    *announcer
	counts  *counters

	pairs      *pairs
	reflectors []*reflector
	pods       *pods
	tokens     *tokens
	events     *remoteEvents
}

// New prepares the reflection. cfg is this cluster.
func New(cfg *rest.Config, o Options) (*Engine, error) {
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	if o.Patience == 0 {
		o.Patience = silence
	}
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	local, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	e := &Engine{options: o, local: local, counts: newCounters(&o)}
	e.remote = farSide{scheme: scheme, mapper: mapper, limiter: flowcontrol.NewTokenBucketRateLimiter(qps, burst), open: make(chan struct{})}
	e.said = newAnnouncer(local, o.Mapping.NodeName)
	e.pairs = newPairs(e)
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

// DefaultWorkers are, by the kinds that have a flag, how many objects are worked on at once unless it says otherwise.
func DefaultWorkers() map[string]int {
	all := map[string]int{podFlag: podWorkers, tokenFlag: tokenWorkers}
	for i := range catalog {
		all[catalog[i].flag] = catalog[i].workers
	}
	return all
}

func (o *Options) workers(flag string, otherwise int) int {
	if workers, set := o.Workers[flag]; set {
		return workers
	}
	return otherwise
}

// kinds are those that cross, so that nobody has to be asked which there are.
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
		corev1.SchemeGroupVersion:       {"Pod", "Service", "ConfigMap", "Secret", "Event", "ServiceAccount"},
		discoveryv1.SchemeGroupVersion:  {"EndpointSlice"},
		networkingv1.SchemeGroupVersion: {"Ingress"},
		vkv1alpha1.GroupVersion:         {"ShadowPod", "ShadowEndpointSlice", "NamespaceMap"},
	} {
		for _, name := range names {
			mapper.Add(version.WithKind(name), meta.RESTScopeNamespace)
		}
	}
	return scheme, mapper, nil
}

// Run reflects until ctx ends. It deletes nothing when it stops.
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
	working.Go(func() { e.said.run(ctx) })
	e.pairs.run(ctx)
	<-ctx.Done()
	for _, q := range e.queues() {
		q.close()
	}
	working.Wait()
	return nil
}

// Synced says whether it is known which namespaces are offloaded, and which pods are on the node.
func (e *Engine) Synced() bool {
	return e.pairs.maps.Synced(e.options.Namespace) && (e.pods == nil || e.pods.local.Synced(""))
}

// apiServer is what pods that are made in a twin are told of the API server. Without tokens there is nothing to tell.
func (e *Engine) apiServer(pair *pair) (project.APIServer, error) {
	if e.tokens == nil || !pair.apiServer.Load() {
		return project.APIServer{}, nil
	}
	return e.options.APIServer()
}

// queues are all of them.
func (e *Engine) queues() []*queue {
	all := e.crossing()
	if e.pods != nil {
		all = append(all, e.pods.back)
	}
	return all
}

// crossing are the queues of what is written over there.
func (e *Engine) crossing() (all []*queue) {
	for _, r := range e.reflectors {
		all = append(all, r.queue)
	}
	if e.pods != nil {
		all = append(all, e.pods.forth)
	}
	if e.tokens != nil {
		all = append(all, e.tokens.queue)
	}
	return all
}

// SetConnection tells how the connection to the peer stands. While nobody answers, nothing is tried; what waits is tried at once when it is back.
func (e *Engine) SetConnection(connection *remote.Connection, answers bool) {
	switch changed, err := e.remote.reached(connection, answers); {
	case err != nil:
		e.said.log.Error(err, "peer not reflected to")
	case changed && answers:
		for _, q := range e.crossing() {
			q.resume()
		}
		e.pairs.each(func(pair *pair) {
			if e.pods != nil {
				e.pods.watched(pair.link.Remote)
			}
		})
	case changed:
		for _, q := range e.crossing() {
			q.pause()
		}
		if e.pods != nil {
			select {
			case e.pods.silent <- struct{}{}:
			default:
			}
		}
	}
}

// TranslationChanged tells that the Translator has learned something.
func (e *Engine) TranslationChanged() {
	for _, r := range e.reflectors {
		if r.kind.needsIPs {
			r.again()
		}
	}
	if e.pods != nil {
		e.pods.again()
	}
}

// farSide is the peer, as long as it can be reached.
type farSide struct {
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	limiter flowcontrol.RateLimiter

	mu     sync.Mutex
	http   *http.Client
	client atomic.Pointer[client.WithWatch]
	open   chan struct{} // closed while the peer answers
	opened bool
}

func (f *farSide) reached(connection *remote.Connection, answers bool) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if connection == nil {
		answers = false
	}
	if answers {
		// It has another HTTP client if the peer has moved.
		if shared := connection.HTTPClient(); f.http != shared {
			config := connection.Config()
			// With the connection's own HTTP client: one connection carries all, and its token is always the current one.
			config.RateLimiter = f.limiter
			brief := *shared
			brief.Transport = ssa.MetadataAnswers(shared.Transport)
			made, err := client.NewWithWatch(config, client.Options{HTTPClient: &brief, Scheme: f.scheme, Mapper: f.mapper})
			if err != nil {
				return false, fmt.Errorf("client of the remote cluster: %w", err)
			}
			f.http = shared
			f.client.Store(&made)
		}
	}
	changed = f.opened != answers
	switch {
	case changed && answers:
		close(f.open)
	case changed:
		f.open = make(chan struct{})
	}
	f.opened = answers
	return changed, nil
}

// answers says whether the peer does.
func (f *farSide) answers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

var errUnreachable = errors.New("the remote cluster cannot be reached")

// now is the client, if the peer answers.
func (f *farSide) now() (client.WithWatch, error) {
	if made := f.client.Load(); made != nil {
		return *made, nil
	}
	return nil, errUnreachable
}

// current is for those that have seen that there is a client.
func (f *farSide) current() client.Client {
	if made := f.client.Load(); made != nil {
		return *made
	}
	return nil
}

// opening is closed while the peer answers.
func (f *farSide) opening() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// wait until the peer answers.
func (f *farSide) wait(ctx context.Context) (client.WithWatch, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.opening():
			return f.now()
		}
	}
}
