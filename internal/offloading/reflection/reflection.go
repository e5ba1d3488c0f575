// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/checked"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/objects"
	"liqo.io/liqo/internal/offloading/reflection/objects/budgets"
	"liqo.io/liqo/internal/offloading/reflection/objects/custom"
	"liqo.io/liqo/internal/offloading/reflection/objects/services"
	"liqo.io/liqo/internal/offloading/reflection/pods"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
	"liqo.io/liqo/internal/offloading/reflection/tokens"
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
	// APIServer returns how remote pods reach the API server of this cluster, or podspec.ErrNoAPIServer while that is not known. Nil: no remote pod
	// reaches it. Pods in the namespaces that the NamespaceMap excludes never do.
	APIServer func() (podspec.APIServer, error)
	// CheckNetwork: pods are Ready only while the clusters reach each other, as SetNetwork reports. Nothing is reported about them before its first call.
	CheckNetwork bool
	// UnreachableTimeout is how long the peer may be unreachable before the tolerations of its pods are extended, so that Kubernetes does not replace them.
	// 0: 30 seconds.
	UnreachableTimeout time.Duration
	// StuckTimeout is for how long, beyond a grace period, a remote pod that has run may be stuck before it is replaced: its
	// node is lost, or no node takes it. 0: two minutes.
	StuckTimeout time.Duration
	// FailureLimit is how many pods may fail within ten minutes before Failing reports it. 0: 50.
	FailureLimit int
}

// Reflection reflects all namespaces that are offloaded to one peer.
type Reflection struct {
	options Options
	engine  *engine.Engine
	objects *objects.Objects
	// services is the part of objects that knows endpoints.
	services *services.Services
	pods     *pods.Pods     // nil: no pods are reflected
	tokens   *tokens.Tokens // nil: no pod gets tokens
	copier   *events.Copier // of the events of pods; nil without pods
	claims   Claims         // nil: there are none
	// declined is what the peer refuses of claims.
	declined *refusals.Metadata
}

// New prepares the reflection. cfg connects to this cluster.
func New(cfg *rest.Config, o Options) (*Reflection, error) {
	scheme, static, err := known()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection to the local cluster: %w", err)
	}
	mapper, served, err := customKinds(cfg, shared, static)
	if err != nil {
		return nil, err
	}
	local, err := client.NewWithWatch(cfg, client.Options{HTTPClient: shared, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the local cluster: %w", err)
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	access := remote.NewAccess(func(connection *remote.Connection) (client.WithWatch, error) {
		config, brief := connection.Config(), *connection.HTTPClient()
		config.RateLimiter, brief.Transport = limiter, ssa.LeanApplies(brief.Transport)
		return checked.NewClient(config, &brief, scheme, mapper)
	})
	r := &Reflection{options: o, declined: refusals.NewMetadata()}
	o.Mapping.RemoteName = o.RemoteName
	r.engine = engine.New(local, access, engine.Options{Namespace: o.Namespace, NamespaceMap: o.NamespaceMap, Mapping: o.Mapping, RemoteName: o.RemoteName})
	podWorkers := o.workers(pods.Flag, pods.DefaultWorkers)
	toObjects := objects.Options{Workers: o.workers, ReflectIPs: o.ReflectIPs, RemoteChanged: r.copyChanged}
	toServices, toBudgets := services.Options{Translator: o.Translator}, budgets.Options{}
	if podWorkers > 0 {
		synced := func() bool { return r.pods.Synced() }
		ofNode := func(namespace string) []*corev1.Pod { return r.pods.OfNamespace(namespace) }
		toObjects.PodsSynced, toServices.PodsSynced, toBudgets.PodsSynced = synced, synced, synced
		toServices.NodePods, toBudgets.NodePods = ofNode, ofNode
		toBudgets.LabelsThere = func(remote types.NamespacedName) (map[string]string, bool) { return r.pods.LabelsThere(remote) }
	}
	r.services = services.New(r.engine, toServices)
	r.objects = objects.New(r.engine, toObjects, r.services, budgets.New(r.engine, toBudgets))
	custom.Add(r.engine, r.objects, served)
	r.engine.Add(&engine.Loop{Start: r.startClaims, Stop: r.stopClaims}) // before the pods, which ask for their data
	if podWorkers > 0 {
		r.addPods(podWorkers)
	}
	return r, nil
}

// addPods adds the loops of pods, of what is written about them, and of their tokens.
func (r *Reflection) addPods(workers int) {
	o := &r.options
	toPods := pods.Options{
		Workers: workers, HostIP: o.HostIP, NodeName: o.Mapping.NodeName, APIServer: o.APIServer, CheckNetwork: o.CheckNetwork,
		UnreachableTimeout: o.UnreachableTimeout, StuckTimeout: o.StuckTimeout, FailureLimit: o.FailureLimit,
		Referrers: r.objects.PodChanged, Arrived: func(before, after client.Object) { r.copier.Arrived(before, after) },
	}
	if o.ReflectIPs {
		toPods.Translator = o.Translator
	}
	r.pods = pods.New(r.engine, toPods)
	r.copier = events.NewCopier(r.engine.Recorder, events.CopierOptions{
		Remote: r.engine.Remote.WaitForClient, Local: r.engine.Local,
		Mapping: func(remote string) (project.NamespaceMapping, bool) {
			if mapping := r.engine.Namespaces.Remote(remote); mapping != nil {
				return mapping.NamespaceMapping, true
			}
			return project.NamespaceMapping{}, false
		},
		Object: func(mapping project.NamespaceMapping, subject events.Subject) client.Object {
			if subject.Kind == pods.Kind {
				return r.pods.About(mapping, subject)
			}
			return r.objects.About(mapping, subject)
		},
	})
	r.engine.Add(&engine.Loop{
		Start: func(mapping *engine.Mapping) { r.copier.Source.Add(mapping.Context, mapping.Remote) },
		Stop:  func(mapping *engine.Mapping) { r.copier.Source.Remove(mapping.Remote) },
	})
	if workers := o.workers(tokens.Flag, tokens.DefaultWorkers); workers > 0 && o.APIServer != nil {
		var copies *fanin.Source
		if secrets := r.objects.Kind("Secret"); secrets != nil {
			copies = secrets.Remote
		}
		r.tokens = tokens.New(r.engine, r.pods, copies, workers)
		r.pods.SetTokens(r.tokens)
	}
}

// copyChanged passes on what happened to the copy of an object.
func (r *Reflection) copyChanged(kind string, before, after client.Object) {
	if r.copier != nil {
		r.copier.Arrived(before, after)
	}
	if r.tokens != nil && kind == "Secret" {
		r.tokens.RemoteChanged(before, after)
	}
}

// DefaultWorkers returns the default number of workers by the flag of their kind.
func DefaultWorkers() map[string]int {
	all := objects.DefaultWorkers()
	all[pods.Flag], all[tokens.Flag] = pods.DefaultWorkers, tokens.DefaultWorkers
	return all
}

func (o *Options) workers(flag string, fallback int) int {
	if workers, ok := o.Workers[flag]; ok {
		return workers
	}
	return fallback
}

// known returns a scheme and a mapper of the kinds that are read and written. With a static mapper, no client needs discovery requests.
func known() (*runtime.Scheme, meta.RESTMapper, error) {
	all, err := scheme.Of(kinds.AddToScheme, authenticationv1.AddToScheme, metav1.AddMetaToScheme)
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds.All() {
		mapper.Add(kind.Local.GroupVersionKind, meta.RESTScopeNamespace)
		mapper.Add(kind.Remote.GroupVersionKind, meta.RESTScopeNamespace)
	}
	for version, names := range map[schema.GroupVersion][]string{
		corev1.SchemeGroupVersion:       {"Event", "ServiceAccount"},
		vkv1alpha1.GroupVersion:         {"NamespaceMap"},
		offloadingv1alpha1.GroupVersion: {"NamespaceOffloading"},
	} {
		for _, name := range names {
			mapper.Add(version.WithKind(name), meta.RESTScopeNamespace)
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolume"), meta.RESTScopeRoot)
	return all, mapper, nil
}

// customKinds extends a mapper by the custom resources of this cluster, and returns how to ask for them. No request is sent before a user lists such a kind.
func customKinds(cfg *rest.Config, shared *http.Client, known meta.RESTMapper) (meta.RESTMapper, custom.Served, error) {
	found, err := apiutil.NewDynamicRESTMapper(cfg, shared)
	if err != nil {
		return nil, nil, fmt.Errorf("kinds of the local cluster: %w", err)
	}
	discovered, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, shared)
	if err != nil {
		return nil, nil, fmt.Errorf("kinds of the local cluster: %w", err)
	}
	served := func(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
		return discovered.ServerResourcesForGroupVersionWithContext(ctx, version.String())
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, found}}, served, nil
}

// Run reflects until ctx ends. Stopping deletes nothing.
func (r *Reflection) Run(ctx context.Context) error { return r.engine.Run(ctx) }

// Synced reports whether the caches of the NamespaceMap and of the node's pods are filled.
func (r *Reflection) Synced() bool {
	return r.engine.Namespaces.Synced() && (r.pods == nil || r.pods.Synced())
}

// SetConnection records the connection to the peer and whether the peer is reachable. While it is not, nothing is written to the peer; once it is, whatever has
// failed is tried again at once.
func (r *Reflection) SetConnection(connection *remote.Connection, reachable bool) {
	r.engine.SetConnection(connection, reachable)
}

// SetNetwork records whether the pods of the two clusters reach each other. While they do not, pods are not Ready here.
func (r *Reflection) SetNetwork(up bool) {
	if r.pods != nil {
		r.pods.SetNetwork(up)
	}
}

// TranslationChanged makes the loops translate all addresses again: the Translator has new information.
func (r *Reflection) TranslationChanged() { r.engine.TranslationChanged() }

// Endpoints returns the addresses of endpoints that the peer is to reach, with their ports. complete is false while the EndpointSlices of some offloaded
// namespace are not known.
func (r *Reflection) Endpoints() (all map[netip.Addr][]kinds.Port, complete bool) {
	return r.services.Endpoints()
}

// Pods calls do with each pod of the node. do must not change it.
func (r *Reflection) Pods(do func(*corev1.Pod)) {
	if r.pods != nil {
		r.pods.All(do)
	}
}

// Another reports whether the peer still has a pod of the name of a pod of the node that is not that pod's.
func (r *Reflection) Another(namespace, name string) bool {
	return r.pods != nil && r.pods.Another(types.NamespacedName{Namespace: namespace, Name: name})
}

// Failing returns why the node must get no more pods; empty if it may.
func (r *Reflection) Failing() string {
	if r.pods == nil {
		return ""
	}
	return r.pods.Failing()
}

// OnFailing sets the function that is called when the result of Failing has changed. Call it before Run.
func (r *Reflection) OnFailing(changed func()) {
	if r.pods != nil {
		r.pods.OnFailing(changed)
	}
}

// Remote returns the remote namespace of a local namespace; false if it has none.
func (r *Reflection) Remote(local string) (name string, offloaded bool) {
	if mapping, _ := r.engine.Namespaces.Local(local); mapping != nil {
		return mapping.Remote, true
	}
	return "", false
}
