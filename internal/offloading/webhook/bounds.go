// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods;shadowendpointslices;namespacemaps,verbs=list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch

// PeerObjectsPath is the path of the webhook that bounds how many objects a peer has.
const PeerObjectsPath = "/validate/peer-objects"

// Resources whose objects are counted. A ResourceQuota is no alternative: while a cluster does not know a custom resource for long, it refuses
// all objects of that resource for up to five minutes.
const (
	ShadowPods           = "shadowpods"
	ShadowEndpointSlices = "shadowendpointslices"
	NamespaceMaps        = "namespacemaps"
	ResourceSlices       = "resourceslices"
)

// PeerObjects counts the objects that each peer has in this cluster, in all its namespaces together. It counts an object when the cache shows it, so
// that a peer may exceed a bound by what it creates within some milliseconds. A request changes nothing here.
type PeerObjects struct {
	most  map[string]int
	known func(namespace string) string
	cache cache.Cache
	// filled: all objects have been counted once.
	filled atomic.Bool

	mu      sync.Mutex
	objects map[string]map[types.NamespacedName]bool // by resource
	// sums are by resource and namespace: the peer of a namespace may become known after its objects.
	sums map[string]map[string]int
}

// SetupPeerObjects counts in every replica, from the manager's cache. most is the most objects of one peer by resource; a resource that it lacks
// is not bounded. known returns the peer of a remote namespace.
func SetupPeerObjects(mgr manager.Manager, most map[string]int, known func(namespace string) string) (*PeerObjects, error) {
	p := newPeerObjects(most, known)
	p.cache = mgr.GetCache()
	return p, mgr.Add(p)
}

func newPeerObjects(most map[string]int, known func(namespace string) string) *PeerObjects {
	return &PeerObjects{most: most, known: known, objects: map[string]map[types.NamespacedName]bool{}, sums: map[string]map[string]int{}}
}

// NeedLeaderElection returns false: every replica serves the webhook.
func (p *PeerObjects) NeedLeaderElection() bool { return false }

// Start follows the objects until ctx ends.
func (p *PeerObjects) Start(ctx context.Context) error {
	synced := []toolscache.InformerSynced{}
	for resource, object := range map[string]client.Object{
		ShadowPods: &vkv1alpha1.ShadowPod{}, ShadowEndpointSlices: &vkv1alpha1.ShadowEndpointSlice{},
		NamespaceMaps: &vkv1alpha1.NamespaceMap{}, ResourceSlices: &sharingv1alpha1.ResourceSlice{},
	} {
		informer, err := p.cache.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { p.set(resource, object) },
			UpdateFunc: func(_, object any) { p.set(resource, object) },
			DeleteFunc: func(object any) {
				if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
					object = missed.Obj
				}
				if gone, ok := object.(client.Object); ok {
					p.mu.Lock()
					defer p.mu.Unlock()
					p.forget(resource, client.ObjectKeyFromObject(gone))
				}
			},
		})
		if err != nil {
			return fmt.Errorf("follow %s: %w", resource, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		p.filled.Store(true)
		<-ctx.Done()
	}
	return nil
}

// inTenant reports whether peers write the resource in their tenant namespaces, where the labels distinguish their objects from ours.
func inTenant(resource string) bool { return resource == NamespaceMaps || resource == ResourceSlices }

func (p *PeerObjects) set(resource string, object any) {
	one, ok := object.(client.Object)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(one)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(resource, key)
	// An object of a tenant that is being deleted leaves its place to its successor: the peer cannot delay its deletion.
	if inTenant(resource) && (one.GetLabels()[labels.Replicated] != "true" || one.GetDeletionTimestamp() != nil) {
		return
	}
	if p.objects[resource] == nil {
		p.objects[resource], p.sums[resource] = map[types.NamespacedName]bool{}, map[string]int{}
	}
	p.objects[resource][key] = true
	p.sums[resource][key.Namespace]++
}

// forget uncounts an object. The caller holds the lock.
func (p *PeerObjects) forget(resource string, key types.NamespacedName) {
	if !p.objects[resource][key] {
		return
	}
	delete(p.objects[resource], key)
	if p.sums[resource][key.Namespace]--; p.sums[resource][key.Namespace] == 0 {
		delete(p.sums[resource], key.Namespace)
	}
}

// owner returns what identifies the peer: a peer has one tenant namespace, and many remote namespaces.
func (p *PeerObjects) owner(resource, namespace string) string {
	if inTenant(resource) {
		return namespace
	}
	return p.known(namespace)
}

// errUncounted: before the objects are counted, nothing is admitted.
var errUncounted = errors.New("the objects of peers have not been listed yet; try again")

// exceeded returns why a peer may not create one more object in a namespace; nothing if it may.
func (p *PeerObjects) exceeded(resource, namespace string) (string, error) {
	most, bounded := p.most[resource]
	if !bounded {
		return "", nil
	}
	if !p.filled.Load() {
		return "", errUncounted
	}
	there := p.count(resource, p.owner(resource, namespace))
	if there < most {
		return "", nil
	}
	return fmt.Sprintf("this cluster has %d %s of the peer already, and at most %d are accepted: delete some, or ask the provider for more", there, resource, most), nil
}

// count returns how many objects a peer has.
func (p *PeerObjects) count(resource, owner string) (sum int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace, n := range p.sums[resource] {
		if p.owner(resource, namespace) == owner {
			sum += n
		}
	}
	return sum
}

// peerObjects is the webhook.
type peerObjects struct {
	objects *PeerObjects
	bytes   *PeerBytes
}

// RegisterPeerObjects adds the webhook to a server.
func RegisterPeerObjects(server webhook.Server, objects *PeerObjects, bytes *PeerBytes) {
	server.Register(PeerObjectsPath, &admission.Webhook{Handler: &peerObjects{objects, bytes}})
}

// Handle admits what a peer creates or updates. The API server calls it only for these.
func (w *peerObjects) Handle(_ context.Context, request admission.Request) admission.Response {
	if request.Operation == admissionv1.Create {
		switch problem, err := w.objects.exceeded(request.Resource.Resource, request.Namespace); {
		case err != nil:
			return admission.Errored(http.StatusServiceUnavailable, err)
		case problem != "":
			return admission.Denied(problem)
		}
	}
	if problem := w.bytes.admit(request); problem != "" {
		return admission.Denied(problem)
	}
	return admission.Allowed("")
}
