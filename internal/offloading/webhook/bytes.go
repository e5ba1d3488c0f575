// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// sized are the resources that peers may write in their remote namespaces.
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
	now        func() time.Time
	queue      workqueue.TypedDelayingInterface[string]

	mu    sync.Mutex
	peers map[string]*peerUse
}

// peerUse is what one peer uses.
type peerUse struct {
	total   int64
	objects map[objectKey]objectSize
	// admitted numbers what is admitted, so that a count does not drop what was admitted meanwhile.
	admitted uint64
	// counted is when the last count ended, known how many objects it found.
	counted time.Time
	known   int
}

type objectKey struct{ resource, namespace, name string }

type objectSize struct {
	bytes    int64
	admitted uint64
}

// SetupPeerBytes counts in every replica. known returns the peer of a remote namespace, namespaces the remote namespaces of a peer.
func SetupPeerBytes(mgr manager.Manager, most int64, known func(namespace string) string, namespaces func(peer string) []string) (*PeerBytes, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.NegotiatedSerializer, config.ContentType, config.AcceptContentTypes = scheme.Codecs.WithoutConversion(), "application/json", "application/json"
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client to count the bytes of peers: %w", err)
	}
	b := newPeerBytes(most, known, namespaces, func(ctx context.Context, path, next string) ([]byte, error) {
		return client.Get().AbsPath(path).Param("limit", strconv.Itoa(recountPage)).Param("continue", next).DoRaw(ctx)
	})
	return b, mgr.Add(b)
}

func newPeerBytes(most int64, known func(string) string, namespaces func(string) []string, list func(ctx context.Context, path, next string) ([]byte, error)) *PeerBytes {
	return &PeerBytes{
		most: most, known: known, namespaces: namespaces, list: list, kinds: sized, now: time.Now, peers: map[string]*peerUse{},
		queue: workqueue.NewTypedDelayingQueue[string](),
	}
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
	if b == nil || inTenant(request.Resource.Resource) {
		return ""
	}
	dryRun := request.DryRun != nil && *request.DryRun
	return b.take(objectKey{request.Resource.Resource, request.Namespace, request.Name}, int64(len(request.Object.Raw)), dryRun)
}

// take admits an object of a size, or returns why it is refused. With dryRun, it does not count.
func (b *PeerBytes) take(key objectKey, size int64, dryRun bool) string {
	peer := b.known(key.namespace)
	b.mu.Lock()
	defer b.mu.Unlock()
	use := b.peers[peer]
	if use == nil { // the first object since this process started
		use = &peerUse{objects: map[objectKey]objectSize{}}
		b.peers[peer] = use
		b.queue.Add(peer)
	}
	before := use.objects[key].bytes
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
	u.total += size.bytes - u.objects[key].bytes
	u.objects[key] = size
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
	found := map[objectKey]int64{}
	for _, namespace := range b.namespaces(peer) {
		for _, one := range b.kinds {
			if err := b.read(ctx, one, namespace, found); err != nil {
				return err
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, size := range use.objects {
		if _, there := found[key]; !there && size.admitted <= began {
			use.total -= size.bytes
			delete(use.objects, key)
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
			into[objectKey{of.Resource, namespace, object.Metadata.Name}] = int64(len(item))
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}
