// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/scheme"
)

// Wants are the kinds that a role watches and has rights for.
type Wants struct {
	// Namespace is the install namespace, where gateways run.
	Namespace string
	// Mappings and KeysSecret (the name of a Secret) are for gateways.
	Mappings   bool
	KeysSecret string
	// Pods: watch the pods of all namespaces as soon as a node has no pod network of its own.
	Pods bool
	// Restricted: watch the pods of all namespaces, and which namespaces are offloaded to whom, to restrict the traffic with peers to these pods.
	Restricted bool
}

// Caches hold the listed and watched objects. They stay as they are while the API server is away.
type Caches struct {
	wants   Wants
	cfg     *rest.Config
	main    cache.Cache
	changed func()
	ctx     context.Context

	mu          sync.Mutex
	synced      []func() bool
	pods        cache.Cache
	podsFilled  func() bool
	podsSince   time.Time
	podsTimeout time.Duration
}

// defaultPodsTimeout is how long the other objects wait for the list of all pods.
const defaultPodsTimeout = 10 * time.Second

// NewCaches returns caches that call changed at each change. They send no request before Run.
func NewCaches(cfg *rest.Config, wants Wants, changed func()) (*Caches, error) {
	byObject := map[client.Object]cache.ByObject{
		&netv1alpha1.TunnelEndpoint{}: {Transform: trimTunnel},
		&corev1.Node{}:                {Transform: trimNode, Label: realNodes},
		&corev1.Pod{}: {
			Transform: trimPod, Label: klabels.SelectorFromSet(klabels.Set{labels.Gateway: labels.GatewayActive}),
			Namespaces: map[string]cache.Config{wants.Namespace: {}},
		},
	}
	if wants.Mappings {
		byObject[&netv1alpha1.IPMapping{}] = cache.ByObject{Transform: trimMeta}
	}
	if wants.Restricted {
		byObject[&vkv1alpha1.NamespaceMap{}] = cache.ByObject{Transform: trimMap, Label: klabels.SelectorFromSet(klabels.Set{labels.Replication: "true"})}
	}
	if wants.KeysSecret != "" {
		byObject[&corev1.Secret{}] = cache.ByObject{
			Namespaces: map[string]cache.Config{wants.Namespace: {}}, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, wants.KeysSecret),
		}
	}
	c := &Caches{wants: wants, cfg: rest.CopyConfig(cfg), changed: changed, podsTimeout: defaultPodsTimeout}
	var err error
	c.main, err = newCache(c.cfg, byObject)
	return c, err
}

// realNodes excludes virtual nodes.
var realNodes = func() klabels.Selector {
	selector, err := klabels.Parse(labels.Type + "!=" + labels.TypeVirtualNode)
	if err != nil {
		panic(err) // a constant
	}
	return selector
}()

func newCache(cfg *rest.Config, byObject map[client.Object]cache.ByObject) (cache.Cache, error) {
	kinds, err := scheme.Of(corev1.AddToScheme, netv1alpha1.AddToScheme, vkv1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	// The kinds are fixed; discovery would be one more request that fails while the API server is away.
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		corev1.SchemeGroupVersion.WithKind("Node"):          meta.RESTScopeRoot,
		corev1.SchemeGroupVersion.WithKind("Pod"):           meta.RESTScopeNamespace,
		corev1.SchemeGroupVersion.WithKind("Secret"):        meta.RESTScopeNamespace,
		netv1alpha1.GroupVersion.WithKind("TunnelEndpoint"): meta.RESTScopeNamespace,
		netv1alpha1.GroupVersion.WithKind("IPMapping"):      meta.RESTScopeRoot,
		vkv1alpha1.GroupVersion.WithKind("NamespaceMap"):    meta.RESTScopeNamespace,
	} {
		mapper.Add(kind, scope)
		mapper.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), scope) // a cache restricted to namespaces looks up the scope of lists
	}
	made, err := cache.New(cfg, cache.Options{Scheme: kinds, Mapper: mapper, ByObject: byObject, DefaultUnsafeDisableDeepCopy: new(true)})
	if err != nil {
		return nil, fmt.Errorf("create caches: %w", err)
	}
	return made, nil
}

// Run fills the caches and keeps them up to date until ctx ends.
func (c *Caches) Run(ctx context.Context) error {
	kinds := []client.Object{&netv1alpha1.TunnelEndpoint{}, &corev1.Node{}, &corev1.Pod{}}
	if c.wants.Mappings {
		kinds = append(kinds, &netv1alpha1.IPMapping{})
	}
	if c.wants.Restricted {
		kinds = append(kinds, &vkv1alpha1.NamespaceMap{})
	}
	if c.wants.KeysSecret != "" {
		kinds = append(kinds, &corev1.Secret{})
	}
	var synced []func() bool
	for _, kind := range kinds {
		one, err := c.watch(ctx, c.main, kind)
		if err != nil {
			return err
		}
		synced = append(synced, one)
	}
	c.mu.Lock()
	c.ctx, c.synced = ctx, synced
	c.mu.Unlock()
	return c.main.Start(ctx)
}

// watch starts to watch a kind without waiting for the first list.
func (c *Caches) watch(ctx context.Context, in cache.Cache, kind client.Object) (synced func() bool, err error) {
	informer, err := in.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.changed() },
		DeleteFunc: func(any) { c.changed() },
		UpdateFunc: func(before, after any) {
			if !sameButVersion(before, after) {
				c.changed()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// sameButVersion reports whether two versions of a trimmed object are equal: the heartbeats of a node change nothing that is kept.
func sameButVersion(before, after any) bool {
	old, ok1 := before.(client.Object)
	now, ok2 := after.(client.Object)
	if !ok1 || !ok2 {
		return false
	}
	old, now = old.DeepCopyObject().(client.Object), now.DeepCopyObject().(client.Object)
	old.SetResourceVersion("")
	now.SetResourceVersion("")
	return equality.Semantic.DeepEqual(old, now)
}

// Synced reports whether every kind was listed once. It then stays true, whether or not the API server answers.
func (c *Caches) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return len(c.synced) > 0
}

// Objects returns the cached objects. known is false until every kind was listed once. The objects are shared and must not be changed.
func (c *Caches) Objects(ctx context.Context) (objects Objects, known bool, err error) {
	if !c.Synced() {
		return Objects{}, false, nil
	}
	var tunnels netv1alpha1.TunnelEndpointList
	var nodes corev1.NodeList
	var pods, all corev1.PodList
	var mappings netv1alpha1.IPMappingList
	var secrets corev1.SecretList
	var maps vkv1alpha1.NamespaceMapList
	err = errors.Join(c.main.List(ctx, &tunnels), c.main.List(ctx, &nodes), c.main.List(ctx, &pods, client.InNamespace(c.wants.Namespace)))
	if c.wants.Mappings {
		err = errors.Join(err, c.main.List(ctx, &mappings))
	}
	if c.wants.Restricted {
		err = errors.Join(err, c.main.List(ctx, &maps))
	}
	if c.wants.KeysSecret != "" {
		err = errors.Join(err, c.main.List(ctx, &secrets, client.InNamespace(c.wants.Namespace)))
	}
	known = err == nil
	unknown := false
	if (c.wants.Pods || c.wants.Restricted) && known {
		podCache, wait, failed := c.podsOf(nodes.Items)
		if err = failed; err == nil && podCache != nil {
			err = podCache.List(ctx, &all)
		}
		// An error about pods does not affect the other kinds. But without the list, a missing pod does not mean that there is none.
		// With restricted traffic, it would mean that no pod belongs to a peering: the last plan stays.
		known, unknown = !wait && (err == nil || !c.wants.Restricted), err != nil
	}
	if err != nil {
		err = fmt.Errorf("list watched objects: %w", err)
	}
	objects = Objects{
		Tunnels: tunnels.Items, Nodes: nodes.Items, Gateways: pods.Items, Mappings: mappings.Items, Pods: all.Items, PodsUnknown: unknown,
		Restricted: c.wants.Restricted, NamespaceMaps: maps.Items, Namespace: c.wants.Namespace,
	}
	if len(secrets.Items) == 1 {
		objects.Keys = &secrets.Items[0]
	}
	return objects, known, err
}

// Gateways need all pods in clusters whose nodes have no pod networks of their own, and if traffic is restricted; then also which namespaces are
// offloaded. The chart grants the rights only on demand.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list;watch

// podsOf returns the cache of all pods, by far the largest one, and creates it when a node first needs it. wait is true while it fills, but
// not for longer than podsTimeout: a gateway without the right to list pods must still get the other objects.
func (c *Caches) podsOf(nodes []corev1.Node) (filled cache.Cache, wait bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		if !c.wants.Restricted && !slices.ContainsFunc(nodes, func(node corev1.Node) bool { return len(podNetworks(&node)) == 0 }) {
			return nil, false, nil
		}
		made, err := newCache(c.cfg, map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: trimPod}})
		if err != nil {
			return nil, false, err
		}
		if c.podsFilled, err = c.watch(c.ctx, made, &corev1.Pod{}); err != nil {
			return nil, false, err
		}
		c.pods, c.podsSince = made, time.Now()
		go func() { _ = made.Start(c.ctx) }() // it returns when ctx ends, and never with another error
	}
	switch {
	case c.podsFilled():
		return c.pods, false, nil
	case time.Since(c.podsSince) < c.podsTimeout:
		return nil, true, nil
	}
	return nil, false, errors.New("pods are not listed yet, so pods on nodes without a network of their own (spec.podCIDRs), or with " +
		"restricted traffic all pods, cannot be reached; check that the gateway may list pods")
}

// trimMeta drops the metadata that neither finds nor orders an object.
func trimMeta(in any) (any, error) {
	if object, ok := in.(client.Object); ok {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return in, nil
}

// trimTunnel keeps the agreement. Of the status, which comes from our own reports, only the MTU must wake the loop, and whether the agreement is old.
func trimTunnel(in any) (any, error) {
	if tunnel, ok := in.(*netv1alpha1.TunnelEndpoint); ok {
		kept := netv1alpha1.TunnelEndpointStatus{Connection: netv1alpha1.Connection{MTU: tunnel.Status.Connection.MTU}}
		if isOld(tunnel) {
			kept.Conditions = []metav1.Condition{{Type: netv1alpha1.ConditionReady, Reason: netv1alpha1.ReasonAnswerPending, ObservedGeneration: tunnel.Generation}}
		}
		tunnel.Status = kept
	}
	return trimMeta(in)
}

func keptMeta(in *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: in.Name, Namespace: in.Namespace, UID: in.UID, ResourceVersion: in.ResourceVersion,
		CreationTimestamp: in.CreationTimestamp, DeletionTimestamp: in.DeletionTimestamp,
	}
}

// trimNode keeps the addresses and networks of a node.
func trimNode(in any) (any, error) {
	node, ok := in.(*corev1.Node)
	if !ok {
		return in, nil
	}
	kept := &corev1.Node{ObjectMeta: keptMeta(&node.ObjectMeta), Spec: corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs}}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			kept.Status.Addresses = append(kept.Status.Addresses, address)
		}
	}
	return kept, nil
}

// trimPod keeps where a pod is, and what it belongs to.
func trimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: keptMeta(&pod.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status:     corev1.PodStatus{PodIP: pod.Status.PodIP, Phase: pod.Status.Phase},
	}
	for _, key := range []string{labels.GatewayLane, labels.Origin, labels.AppComponent} {
		if value, ok := pod.Labels[key]; ok {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[key] = value
		}
	}
	return kept, nil
}

// trimMap keeps which namespaces are offloaded to whom.
func trimMap(in any) (any, error) {
	if one, ok := in.(*vkv1alpha1.NamespaceMap); ok {
		kept := &vkv1alpha1.NamespaceMap{ObjectMeta: keptMeta(&one.ObjectMeta), Spec: one.Spec}
		kept.Labels = map[string]string{labels.RemoteID: one.Labels[labels.RemoteID]}
		return kept, nil
	}
	return in, nil
}
