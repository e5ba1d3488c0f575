// SPDX-License-Identifier: Apache-2.0

// Package peerobjects serves the webhook that bounds what a peer has in this cluster and how much it writes. review.go reads a request, package
// ledger decides, and peerobjects.go keeps its ledger true: it lists what is there, after a start and when a verdict asks for it.
//
// Every replica counts for itself. A review writes nothing to an API server. The package must not know what pods request, which package quota
// counts, nor which ShadowPods are refused, which package shadow decides.
//
// It is proved by the attacks of peerobjects_test.go, bounds_test.go and early_test.go, and between API servers by deployments/liqo/integration.
package peerobjects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/informer"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/ledger"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods;shadowendpointslices;namespacemaps,verbs=list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Kinds of Liqo that peers write.
var (
	ShadowPods           = kinds.Pod.Remote.GroupResource()
	ShadowEndpointSlices = kinds.EndpointSlice.Remote.GroupResource()
	NamespaceMaps        = vkv1alpha1.GroupVersion.WithResource("namespacemaps").GroupResource()
	ResourceSlices       = sharingv1alpha1.GroupVersion.WithResource("resourceslices").GroupResource()
	networkConfigs       = netv1alpha1.GroupVersion.WithResource("networkconfigs").GroupResource()
)

// listed returns the resources that all peers may write in their remote namespaces.
func listed() (all []schema.GroupVersionResource) {
	for _, kind := range kinds.Where(func(kind *kinds.Kind) bool { return kind.Counted }) {
		all = append(all, kind.Remote.GroupVersionResource())
	}
	return all
}

// inTenant reports whether peers write the resource in their tenant namespaces, where the labels distinguish their objects from ours.
func inTenant(kind schema.GroupResource) bool {
	return kind == NamespaceMaps || kind == ResourceSlices || kind == networkConfigs
}

const (
	// relistPause is the least time between two lists of one peer.
	relistPause = 5 * time.Second
	// relistPage is how many objects are read at once. Each may have more than a megabyte.
	relistPage = 20
	// relistDeadline bounds one list.
	relistDeadline = 5 * time.Minute
	// leftPause is after which time a peer is listed again of which something was left out.
	leftPause = 10 * time.Minute
	// goneInterval is how often peers without namespaces are forgotten.
	goneInterval = 10 * time.Minute
)

// unlisted is the time of the last list of a peer whose first one has not ended.
var unlisted = time.Unix(1, 0)

// earlyWait is what a peer waits for its first list.
const earlyWait = time.Second

// earlyProblem is why a peer waits: it has added as much as it gets before its first list.
const earlyProblem = "what the peer has is being counted, because the controller manager has started: what it adds is judged in a moment, " +
	"and it tries again on its own"

// countedByCaches reports whether the caches count the objects of a kind, so that their number is known from the start.
func countedByCaches(kind schema.GroupResource) bool {
	return kind == ShadowPods || kind == ShadowEndpointSlices || inTenant(kind)
}

// Ledger keeps the ledger of all peers in every replica. It adds what it admits, and lists the objects of a peer again when a verdict asks for it: so deleted
// objects, and those that another replica admitted, count a moment later. A review changes nothing but the ledger.
type Ledger struct {
	// known returns the peer of a remote namespace, namespaces those of a peer, and tenant the peer of a tenant namespace.
	known      func(namespace string) string
	namespaces func(peer string) []string
	tenant     func(namespace string) string
	list       func(ctx context.Context, path, next string) ([]byte, error)
	cache      cache.Cache
	kinds      []schema.GroupVersionResource
	// custom are the custom resources that peers may write, served the version of one.
	custom []schema.GroupResource
	served func(schema.GroupResource) (schema.GroupVersionResource, error)
	now    func() time.Time
	queue  workqueue.TypedDelayingInterface[string]

	mu     sync.Mutex
	filled bool
	ledger *ledger.Ledger
	// early counts what peers get before their objects are listed for the first time since this process started.
	early *ledger.Ledger
	// ended is when the objects of a peer were last listed.
	ended map[string]time.Time
}

// Options are what peers may have.
type Options struct {
	Limits ledger.Limits
	// Custom are the custom resources that peers may write.
	Custom []schema.GroupResource
	// Known returns the peer of a remote namespace, Namespaces the remote namespaces of a peer.
	Known      func(namespace string) string
	Namespaces func(peer string) []string
}

// Setup counts in every replica.
func Setup(mgr manager.Manager, o Options) (*Ledger, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.NegotiatedSerializer, config.ContentType, config.AcceptContentTypes = scheme.Codecs.WithoutConversion(), "application/json", "application/json"
	plain, err := rest.UnversionedRESTClientForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client to count the objects of peers: %w", err)
	}
	p := newLedger(o, lister(plain))
	p.cache = mgr.GetCache()
	p.tenant = func(namespace string) string {
		var tenant corev1.Namespace
		if p.cache.Get(context.Background(), client.ObjectKey{Name: namespace}, &tenant, client.UnsafeDisableDeepCopy) == nil &&
			tenant.Labels[labels.ClusterID] != "" {
			return tenant.Labels[labels.ClusterID]
		}
		return namespace // as if it were a peer of its own
	}
	mapper := mgr.GetRESTMapper()
	p.served = func(kind schema.GroupResource) (schema.GroupVersionResource, error) {
		return mapper.ResourceFor(kind.WithVersion(""))
	}
	return p, mgr.Add(p)
}

// lister returns what lists a page of objects as JSON.
func lister(plain rest.Interface) func(ctx context.Context, path, next string) ([]byte, error) {
	return func(ctx context.Context, path, next string) ([]byte, error) {
		return plain.Get().AbsPath(path).Param("limit", strconv.Itoa(relistPage)).Param("continue", next).DoRaw(ctx)
	}
}

func newLedger(o Options, list func(ctx context.Context, path, next string) ([]byte, error)) *Ledger {
	return &Ledger{
		known: o.Known, namespaces: o.Namespaces, tenant: func(namespace string) string { return namespace }, list: list, kinds: listed(), custom: o.Custom,
		now: time.Now, queue: workqueue.NewTypedDelayingQueue[string](), ledger: ledger.New(o.Limits),
		early: ledger.New(o.Limits.Early(countedByCaches)), ended: map[string]time.Time{},
	}
}

// NeedLeaderElection returns false: every replica serves the webhook.
func (p *Ledger) NeedLeaderElection() bool { return false }

// Start counts what the caches have, then lists when it is due, one peer at a time, until ctx ends.
func (p *Ledger) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.queue.ShutDown)()
	if err := p.follow(ctx); err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, func(context.Context) { p.dropGone() }, goneInterval)
	for {
		peer, ended := p.queue.Get()
		if ended {
			return nil
		}
		if err := p.relist(ctx, peer); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "objects of a peer not counted", "clusterID", peer)
			p.queue.AddAfter(peer, relistPause)
		}
		p.queue.Done(peer)
	}
}

// follow counts the objects in tenant namespaces as they come and go, and once the many that other controllers cache.
func (p *Ledger) follow(ctx context.Context) error {
	synced := []toolscache.InformerSynced{}
	for kind, object := range map[schema.GroupResource]client.Object{NamespaceMaps: &vkv1alpha1.NamespaceMap{}, ResourceSlices: &sharingv1alpha1.ResourceSlice{}} {
		done, err := informer.Follow(ctx, p.cache, object, func(object any) { p.set(kind, object) }, func(object any) { p.forget(kind, object) })
		if err != nil {
			return err
		}
		synced = append(synced, done)
	}
	var pods vkv1alpha1.ShadowPodList
	var endpoints vkv1alpha1.ShadowEndpointSliceList
	if err := errors.Join(p.cache.List(ctx, &pods, client.UnsafeDisableDeepCopy), p.cache.List(ctx, &endpoints, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("count the objects of peers: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx has ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range pods.Items {
		p.ledger.Note(ledger.Key{Resource: ShadowPods, Namespace: pods.Items[i].Namespace, Name: pods.Items[i].Name}, p.known(pods.Items[i].Namespace))
	}
	for i := range endpoints.Items {
		p.ledger.Note(ledger.Key{
			Resource: ShadowEndpointSlices, Namespace: endpoints.Items[i].Namespace, Name: endpoints.Items[i].Name,
		}, p.known(endpoints.Items[i].Namespace))
	}
	p.filled = true
	return nil
}

// set counts an object of a tenant namespace. One that is being deleted leaves its place to its successor: the peer cannot delay its deletion.
func (p *Ledger) set(kind schema.GroupResource, object any) {
	counted, ok := object.(client.Object)
	if !ok {
		return
	}
	if counted.GetLabels()[labels.Replicated] != "true" || counted.GetDeletionTimestamp() != nil {
		p.forget(kind, object)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.Note(ledger.Key{Resource: kind, Namespace: counted.GetNamespace(), Name: counted.GetName()}, p.tenant(counted.GetNamespace()))
}

func (p *Ledger) forget(kind schema.GroupResource, object any) {
	if counted, ok := object.(client.Object); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ledger.Forget(ledger.Key{Resource: kind, Namespace: counted.GetNamespace(), Name: counted.GetName()})
	}
}

// errUncounted: before the objects are counted, nothing is admitted.
var errUncounted = errors.New("the objects of peers have not been listed yet; try again")

// admit asks the ledger.
func (p *Ledger) admit(change ledger.Change) (ledger.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.filled {
		return ledger.Verdict{}, errUncounted
	}
	ended := p.ended[change.Peer]
	if ended.IsZero() { // the first object since this process started: what the peer had before is not known
		p.ended[change.Peer] = unlisted
		p.queue.AddAfter(change.Peer, 0)
	}
	if !ended.After(unlisted) {
		if first, adds := p.early.Added(change); adds && p.early.Admit(first).Problem != "" {
			return ledger.Verdict{Wait: earlyWait, Problem: earlyProblem}, nil
		}
	}
	verdict := p.ledger.Admit(change)
	if verdict.Stale && !ended.IsZero() {
		p.queue.AddAfter(change.Peer, ended.Add(relistPause).Sub(p.now()))
	}
	return verdict, nil
}

// relist reads the objects of a peer, and forgets those that are gone. A namespace that this process may not read any more, because it is being deleted or its
// RoleBinding is another one, hinders no other: what is known of it counts on.
func (p *Ledger) relist(ctx context.Context, peer string) error {
	ctx, cancel := context.WithTimeout(ctx, relistDeadline)
	defer cancel()
	p.mu.Lock()
	mark := p.ledger.Mark(p.now())
	p.mu.Unlock()
	kinds, err := p.resources()
	if err != nil {
		return err
	}
	found, of, left := map[ledger.Key]ledger.Use{}, map[schema.GroupResource]bool{}, map[ledger.Key]bool{}
	var why error
	for _, kind := range kinds {
		of[kind.GroupResource()] = true
		for _, namespace := range p.namespaces(peer) {
			switch err := p.read(ctx, kind, namespace, found); {
			case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
				left[ledger.Key{Resource: kind.GroupResource(), Namespace: namespace}], why = true, err
			case err != nil:
				return err
			}
		}
	}
	if len(left) > 0 {
		log.FromContext(ctx).Info(
			"objects of a peer were left out where they cannot be listed; those that are known count on", "clusterID", peer, "lists", len(left),
			"last", why.Error(),
		)
		p.queue.AddAfter(peer, leftPause)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ledger.Replace(peer, of, left, found, mark) {
		p.queue.AddAfter(peer, ledger.Storing)
	}
	p.early.Retain(func(other string) bool { return other != peer })
	p.ended[peer] = p.now()
	return nil
}

// resources returns what is counted. Custom resources that this cluster does not serve have no objects.
func (p *Ledger) resources() ([]schema.GroupVersionResource, error) {
	all := slices.Clone(p.kinds)
	for _, resource := range p.custom {
		switch served, err := p.served(resource); {
		case meta.IsNoMatchError(err):
		case err != nil:
			return nil, fmt.Errorf("look for custom resource %s: %w", resource, err)
		default:
			all = append(all, served)
		}
	}
	return all, nil
}

// dropGone forgets peers that have neither remote namespaces nor objects in a tenant namespace.
func (p *Ledger) dropGone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := func(peer string) bool {
		maps, _ := p.ledger.Has(peer, NamespaceMaps)
		requests, _ := p.ledger.Has(peer, ResourceSlices)
		return maps+requests > 0 || len(p.namespaces(peer)) > 0
	}
	p.ledger.Retain(keep)
	for peer := range p.ended {
		if !keep(peer) {
			delete(p.ended, peer)
		}
	}
}

// read adds the objects of one resource in a namespace.
func (p *Ledger) read(ctx context.Context, of schema.GroupVersionResource, namespace string, into map[ledger.Key]ledger.Use) error {
	path := "/apis/" + of.Group + "/" + of.Version
	if of.Group == "" {
		path = "/api/" + of.Version
	}
	path += "/namespaces/" + namespace + "/" + of.Resource
	for next := ""; ; {
		text, err := p.list(ctx, path, next)
		if err != nil {
			return fmt.Errorf("list %s in namespace %s: %w", of.Resource, namespace, err)
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return fmt.Errorf("list %s in namespace %s: %w", of.Resource, namespace, err)
		}
		for _, item := range page.Items {
			use, name, err := ledger.Measure(of.GroupResource(), item, "")
			if err != nil {
				return fmt.Errorf("list %s in namespace %s: %w", of.Resource, namespace, err)
			}
			into[ledger.Key{Resource: of.GroupResource(), Namespace: namespace, Name: name}] = use
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}
