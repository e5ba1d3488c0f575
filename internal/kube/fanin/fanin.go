// SPDX-License-Identifier: Apache-2.0

// Package fanin watches one kind in a set of namespaces that changes while it runs, and tells of every change in one place.
// Each namespace is an informer of its own, so that rights in these namespaces are enough, and one that
// cannot be read holds up no other.
//
// It must not know any kind, nor what is done with a change. Its proof is fanin_test.go, against a real API server.
package fanin

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Every is the name under which all namespaces are watched at once.
const Every = metav1.NamespaceAll

// Options of a source. None may be changed later, and the functions must return at once.
type Options struct {
	// Object is an example of what is watched, and List makes a list of it: for metadata only, a PartialObjectMetadataList with its kind.
	Object client.Object
	List   func() client.ObjectList
	// Client is asked before each list and each watch; it may wait for a connection, and give another one each time.
	Client func(context.Context) (client.WithWatch, error)
	// Select narrows what is watched.
	Select []client.ListOption
	// Trim drops what nobody reads from an object that nobody else has yet.
	Trim func(client.Object)
	// Changed hears of each change: before is nil for what is new, after is nil for what is gone. Changes of one object are told one after the other.
	Changed func(before, after client.Object)
	// Synced hears that all of a namespace has been told.
	Synced func(namespace string)
	// Resumed is called when the watch of a synced namespace works again after an interruption.
	Resumed func(namespace string)
}

// retry is how soon what failed is tried again: rights in a namespace may come a moment after it, and a peer that is back must not be kept waiting.
var retry = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 3 * time.Second}

// Source is where the changes come from, and what is known.
type Source struct {
	options Options

	mu    sync.RWMutex
	rooms map[string]*room
}

// New returns a source that watches nothing yet.
func New(o Options) *Source { return &Source{options: o, rooms: map[string]*room{}} }

// Add begins to watch a namespace, until ctx ends or it is removed. Adding it again changes nothing.
func (s *Source) Add(ctx context.Context, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rooms[namespace] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	r := &room{options: &s.options, namespace: namespace, stop: stop, objects: map[types.NamespacedName]client.Object{}}
	s.rooms[namespace] = r
	go toolscache.NewReflectorWithOptions(r.listWatch(), s.options.Object, r, toolscache.ReflectorOptions{Name: "fanin", Backoff: &retry}).RunWithContext(ctx)
}

// Remove stops watching a namespace. Nothing is told of its objects: they are not gone, only out of sight.
func (s *Source) Remove(namespace string) {
	s.mu.Lock()
	r := s.rooms[namespace]
	delete(s.rooms, namespace)
	s.mu.Unlock()
	if r != nil {
		r.close()
	}
}

func (s *Source) room(namespace string) *room {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.rooms[namespace]; r != nil {
		return r
	}
	return s.rooms[Every]
}

// Get returns an object, which must not be changed; nil if it is not there, or not known of.
func (s *Source) Get(key types.NamespacedName) client.Object {
	r := s.room(key.Namespace)
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.objects[key]
}

// All returns the objects of a namespace, which must not be changed.
func (s *Source) All(namespace string) []client.Object {
	r := s.room(namespace)
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := slices.Collect(maps.Values(r.objects))
	if r.namespace == Every && namespace != Every {
		all = slices.DeleteFunc(all, func(object client.Object) bool { return object.GetNamespace() != namespace })
	}
	return all
}

// Synced says whether all of a namespace has been told once.
func (s *Source) Synced(namespace string) bool {
	r := s.room(namespace)
	if r == nil {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.synced
}

// Current says whether the namespace is synced and watched at this moment: only then does it mean something that an object is not there.
func (s *Source) Current(namespace string) bool {
	r := s.room(namespace)
	if r == nil {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current()
}

// room is one namespace.
type room struct {
	options   *Options
	namespace string
	stop      context.CancelFunc

	mu      sync.RWMutex
	objects map[types.NamespacedName]client.Object
	synced  bool
	closed  bool
	watches int
	// catching: what is watched begins with all there is, which has not come yet.
	catching bool
	// cut: the last watch ended before its time.
	cut atomic.Bool
}

func (r *room) current() bool { return r.synced && !r.catching && r.watches > 0 }

func (r *room) close() {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.objects = true, nil
}

func (r *room) listWatch() *toolscache.ListWatch {
	within := func(options metav1.ListOptions) []client.ListOption {
		return append([]client.ListOption{&client.ListOptions{Namespace: r.namespace, Raw: &options}}, r.options.Select...)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			c, err := r.options.Client(ctx)
			if err != nil {
				return nil, err
			}
			if options.ResourceVersion == "0" {
				// Whatever an API server happens to remember, which may be less than this process knew before it was restarted: what is not in it
				// would be taken for gone.
				options.ResourceVersion = ""
			}
			list := r.options.List()
			return list, c.List(ctx, list, within(options)...)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			c, err := r.options.Client(ctx)
			if err != nil {
				return nil, err
			}
			catching := options.SendInitialEvents != nil && *options.SendInitialEvents
			if !catching && r.cut.Load() {
				if err := r.restored(ctx, c, options.ResourceVersion); err != nil {
					return nil, err
				}
			}
			w, err := c.Watch(ctx, r.options.List(), within(options)...)
			if err != nil {
				return nil, err
			}
			r.watching(1, catching)
			begin := time.Now()
			return &watched{Interface: w, ended: sync.OnceFunc(func() {
				asked := options.TimeoutSeconds
				r.cut.Store(asked == nil || time.Since(begin) < time.Duration(*asked)*time.Second-time.Second)
				r.watching(-1, false)
			})}, nil
		},
	}
}

func (r *room) watching(more int, catching bool) {
	r.change(func() { r.watches, r.catching = r.watches+more, catching })
}

// restored finds out whether the API server knows less than it did: its store has been replaced by an older one. To a watch from what is
// a later time then, it says nothing, for hours, and what has vanished with the store would be believed to be there. The error makes the
// reflector list anew.
func (r *room) restored(ctx context.Context, c client.WithWatch, known string) error {
	list := r.options.List()
	if err := c.List(ctx, list, append([]client.ListOption{client.InNamespace(r.namespace), client.Limit(1)}, r.options.Select...)...); err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(list.GetResourceVersion(), known); err == nil && order < 0 {
		return apierrors.NewResourceExpired("the API server knows less than it did")
	}
	return nil
}

// change how the namespace is watched, and tell if it is again.
func (r *room) change(how func()) {
	r.mu.Lock()
	synced, before := r.synced, r.current()
	how()
	again := synced && !before && r.current() && !r.closed
	r.mu.Unlock()
	if again && r.options.Resumed != nil {
		r.options.Resumed(r.namespace)
	}
}

// watched tells when a watch is over.
type watched struct {
	watch.Interface
	ended func()
}

func (w *watched) Stop() {
	w.ended()
	w.Interface.Stop()
}

// What follows is what the reflector of client-go keeps up to date: it calls one after the other.

// Transformer trims before anything is kept.
func (r *room) Transformer() toolscache.TransformFunc {
	return func(in any) (any, error) {
		if object, ok := in.(client.Object); ok && r.options.Trim != nil {
			r.options.Trim(object)
		}
		return in, nil
	}
}

// Add is called for what is new.
func (r *room) Add(in any) error { return r.Update(in) }

// Update is called for what has changed.
func (r *room) Update(in any) error {
	object, ok := in.(client.Object)
	if !ok {
		return nil
	}
	if r.options.Trim != nil {
		r.options.Trim(object)
	}
	key := client.ObjectKeyFromObject(object)
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	before := r.objects[key]
	r.objects[key] = object
	r.mu.Unlock()
	r.options.Changed(before, object)
	return nil
}

// Delete is called for what is gone.
func (r *room) Delete(in any) error {
	object, ok := in.(client.Object)
	if !ok {
		return nil
	}
	key := client.ObjectKeyFromObject(object)
	r.mu.Lock()
	_, known := r.objects[key]
	delete(r.objects, key)
	closed := r.closed
	r.mu.Unlock()
	if !closed && known {
		if r.options.Trim != nil {
			r.options.Trim(object)
		}
		r.options.Changed(object, nil) // as it was at its end
	}
	return nil
}

// Replace is called with all there is.
func (r *room) Replace(all []any, _ string) error {
	next := make(map[types.NamespacedName]client.Object, len(all))
	for _, in := range all {
		if object, ok := in.(client.Object); ok {
			if r.options.Trim != nil {
				r.options.Trim(object)
			}
			next[client.ObjectKeyFromObject(object)] = object
		}
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	last := r.objects
	r.objects = next
	r.mu.Unlock()
	for key, after := range next {
		if before := last[key]; before == nil || before.GetUID() != after.GetUID() || before.GetResourceVersion() != after.GetResourceVersion() {
			r.options.Changed(before, after)
		}
	}
	for key, before := range last {
		if next[key] == nil {
			r.options.Changed(before, nil)
		}
	}
	var first bool
	r.change(func() { first, r.synced, r.catching = !r.synced, true, false })
	if first && r.options.Synced != nil {
		r.options.Synced(r.namespace)
	}
	return nil
}

// Resync is never asked for.
func (r *room) Resync() error { return nil }
