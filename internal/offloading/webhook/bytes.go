// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// +kubebuilder:rbac:namespace=liqo-remote,groups="",resources=configmaps;secrets;services,verbs=list
// +kubebuilder:rbac:namespace=liqo-remote,groups=networking.k8s.io,resources=ingresses,verbs=list
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods;shadowendpointslices,verbs=list

// sized are the resources that all peers may write in their remote namespaces.
var sized = []metav1.GroupVersionResource{
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	{Group: "virtualkubelet.liqo.io", Version: "v1alpha1", Resource: ShadowPods},
	{Group: "virtualkubelet.liqo.io", Version: "v1alpha1", Resource: ShadowEndpointSlices},
}

const (
	// recountPause is the least time between two counts of one peer.
	recountPause = 5 * time.Second
	// recountPage is how many objects are read at once. Each may have more than a megabyte.
	recountPage = 20
	// recountDeadline bounds one count.
	recountDeadline = 5 * time.Minute
	// goneInterval is how often peers without namespaces are forgotten.
	goneInterval = 10 * time.Minute
	// staleObjects is how many objects more than at the last count cause another one: deletions are not reported.
	staleObjects = 20_000
)

// PeerBytes bounds how many bytes of JSON the objects of each peer have in all its remote namespaces together, as ResourceQuotas count objects only. Each
// replica adds what it admits to what it counted, and counts again when a peer reaches the bound: so deleted objects, and those that another replica admitted,
// count a moment later.
type PeerBytes struct {
	most int64
	// known returns the peer of a namespace, namespaces those of a peer.
	known      func(namespace string) string
	namespaces func(peer string) []string
	list       func(ctx context.Context, path, next string) ([]byte, error)
	kinds      []metav1.GroupVersionResource
	// custom are the custom resources that peers may write, mostCustom how many objects of each one peer may have, served the version of one.
	custom     map[schema.GroupResource]bool
	mostCustom int
	served     func(schema.GroupResource) (schema.GroupVersionResource, error)
	now        func() time.Time
	queue      workqueue.TypedDelayingInterface[string]

	mu    sync.Mutex
	peers map[string]*peerUse
}

// peerUse is what one peer uses.
type peerUse struct {
	total   int64
	objects map[objectKey]objectSize
	// numbers are the objects of each resource.
	numbers map[schema.GroupResource]int
	// admitted numbers what is admitted, so that a count does not drop what was admitted meanwhile.
	admitted uint64
	// counted is when the last count ended, known how many objects it found.
	counted time.Time
	known   int
}

type objectKey struct {
	resource        schema.GroupResource
	namespace, name string
}

type objectSize struct {
	bytes    int64
	admitted uint64
}

// BytesOptions are what the objects of a peer may be.
type BytesOptions struct {
	// Most is the most bytes of JSON that the objects of one peer have.
	Most int64
	// Custom are the custom resources that peers may write, MostCustom is the most objects of each that one peer has.
	Custom     []schema.GroupResource
	MostCustom int
	// Known returns the peer of a remote namespace, Namespaces the remote namespaces of a peer.
	Known      func(namespace string) string
	Namespaces func(peer string) []string
}

// SetupPeerBytes counts in every replica.
func SetupPeerBytes(mgr manager.Manager, o BytesOptions) (*PeerBytes, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.NegotiatedSerializer, config.ContentType, config.AcceptContentTypes = scheme.Codecs.WithoutConversion(), "application/json", "application/json"
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client to count the bytes of peers: %w", err)
	}
	b := newPeerBytes(o, func(ctx context.Context, path, next string) ([]byte, error) {
		return client.Get().AbsPath(path).Param("limit", strconv.Itoa(recountPage)).Param("continue", next).DoRaw(ctx)
	})
	mapper := mgr.GetRESTMapper()
	b.served = func(resource schema.GroupResource) (schema.GroupVersionResource, error) {
		return mapper.ResourceFor(resource.WithVersion(""))
	}
	return b, mgr.Add(b)
}

func newPeerBytes(o BytesOptions, list func(ctx context.Context, path, next string) ([]byte, error)) *PeerBytes {
	b := &PeerBytes{
		most: o.Most, known: o.Known, namespaces: o.Namespaces, list: list, kinds: sized, custom: map[schema.GroupResource]bool{}, mostCustom: o.MostCustom, now: time.Now,
		peers: map[string]*peerUse{}, queue: workqueue.NewTypedDelayingQueue[string](),
	}
	for _, one := range o.Custom {
		b.custom[one] = true
	}
	return b
}

// NeedLeaderElection returns false: every replica serves the webhook.
func (b *PeerBytes) NeedLeaderElection() bool { return false }

// Start counts when a count is due, one peer at a time, until ctx ends.
func (b *PeerBytes) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, b.queue.ShutDown)()
	go wait.UntilWithContext(ctx, func(context.Context) { b.dropGone() }, goneInterval)
	for {
		peer, ended := b.queue.Get()
		if ended {
			return nil
		}
		if err := b.count(ctx, peer); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "bytes of a peer not counted", "clusterID", peer)
			b.queue.AddAfter(peer, recountPause)
		}
		b.queue.Done(peer)
	}
}

// admit counts the object of a request, or returns why it is refused. Objects in tenant namespaces have bounds in number and in their schemas.
func (b *PeerBytes) admit(request admission.Request) string {
	resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	if b == nil || inTenant(resource.Resource) && !b.custom[resource] {
		return ""
	}
	dryRun := request.DryRun != nil && *request.DryRun
	return b.take(objectKey{resource, request.Namespace, request.Name}, int64(len(request.Object.Raw)), dryRun)
}

// take admits an object of a size, or returns why it is refused. With dryRun, it does not count.
func (b *PeerBytes) take(key objectKey, size int64, dryRun bool) string {
	peer := b.known(key.namespace)
	b.mu.Lock()
	defer b.mu.Unlock()
	use := b.peers[peer]
	if use == nil { // the first object since this process started
		use = &peerUse{objects: map[objectKey]objectSize{}, numbers: map[schema.GroupResource]int{}}
		b.peers[peer] = use
		b.queue.Add(peer)
	}
	known, exists := use.objects[key]
	if !exists && b.custom[key.resource] && use.numbers[key.resource] >= b.mostCustom {
		b.recount(peer, use)
		return fmt.Sprintf("this cluster has %d %s of the peer already, and at most %d are accepted: delete some, or ask the provider for more", use.numbers[key.resource], key.resource, b.mostCustom)
	}
	before := known.bytes
	if after := use.total - before + size; after > b.most && size > before {
		b.recount(peer, use)
		return fmt.Sprintf("the objects of the peer in this cluster would have %s, and at most %s are accepted: delete some, or ask the provider for more",
			resource.NewQuantity(after, resource.BinarySI), resource.NewQuantity(b.most, resource.BinarySI))
	}
	if dryRun {
		return ""
	}
	use.admitted++
	use.set(key, objectSize{size, use.admitted})
	if len(use.objects) > use.known+staleObjects {
		b.recount(peer, use)
	}
	return ""
}

// recount queues a count of a peer, some time after the last one.
func (b *PeerBytes) recount(peer string, use *peerUse) {
	b.queue.AddAfter(peer, use.counted.Add(recountPause).Sub(b.now()))
}

func (u *peerUse) set(key objectKey, size objectSize) {
	before, exists := u.objects[key]
	if !exists {
		u.numbers[key.resource]++
	}
	u.total += size.bytes - before.bytes
	u.objects[key] = size
}

func (u *peerUse) drop(key objectKey) {
	u.total -= u.objects[key].bytes
	u.numbers[key.resource]--
	delete(u.objects, key)
}

// count reads the objects of a peer, and forgets those that are gone.
func (b *PeerBytes) count(ctx context.Context, peer string) error {
	ctx, cancel := context.WithTimeout(ctx, recountDeadline)
	defer cancel()
	b.mu.Lock()
	use := b.peers[peer]
	if use == nil {
		b.mu.Unlock()
		return nil // it has no namespaces any more
	}
	began := use.admitted
	b.mu.Unlock()
	kinds, err := b.resources()
	if err != nil {
		return err
	}
	found := map[objectKey]int64{}
	for _, namespace := range b.namespaces(peer) {
		for _, one := range kinds {
			if err := b.read(ctx, one, namespace, found); err != nil {
				return err
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, size := range use.objects {
		if _, there := found[key]; !there && size.admitted <= began {
			use.drop(key)
		}
	}
	for key, bytes := range found {
		if use.objects[key].admitted <= began {
			use.set(key, objectSize{bytes, use.objects[key].admitted})
		}
	}
	use.counted, use.known = b.now(), len(found)
	return nil
}

// resources returns what is counted. Custom resources that this cluster does not serve have no objects.
func (b *PeerBytes) resources() ([]metav1.GroupVersionResource, error) {
	all := slices.Clone(b.kinds)
	for one := range b.custom {
		switch served, err := b.served(one); {
		case meta.IsNoMatchError(err):
		case err != nil:
			return nil, fmt.Errorf("look for custom resource %s: %w", one, err)
		default:
			all = append(all, metav1.GroupVersionResource(served))
		}
	}
	return all, nil
}

// dropGone forgets peers that have no namespaces.
func (b *PeerBytes) dropGone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.peers, func(peer string, _ *peerUse) bool { return len(b.namespaces(peer)) == 0 })
}

// read adds the sizes of the objects of one resource in a namespace.
func (b *PeerBytes) read(ctx context.Context, of metav1.GroupVersionResource, namespace string, into map[objectKey]int64) error {
	path := "/apis/" + of.Group + "/" + of.Version
	if of.Group == "" {
		path = "/api/" + of.Version
	}
	path += "/namespaces/" + namespace + "/" + of.Resource
	for next := ""; ; {
		text, err := b.list(ctx, path, next)
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
			var object struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if err := json.Unmarshal(item, &object); err != nil {
				return fmt.Errorf("list %s in namespace %s: %w", of.Resource, namespace, err)
			}
			into[objectKey{schema.GroupResource{Group: of.Group, Resource: of.Resource}, namespace, object.Metadata.Name}] = int64(len(item))
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}
