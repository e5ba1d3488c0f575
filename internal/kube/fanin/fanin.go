// SPDX-License-Identifier: Apache-2.0

// Package fanin watches one kind in a set of namespaces that changes at run time, and reports every change to one handler.
// Each namespace has its own reflector. So rights in these namespaces are enough, and a namespace that cannot be read
// delays no other.
//
// It must not know any kind, nor what the handler does. fanin_test.go proves it against a real API server.
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
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Every is the name to pass for a single watch of all namespaces.
const Every = metav1.NamespaceAll

// Options of a source. They must not change after New, and the functions must return quickly.
type Options struct {
	// Object is an example of the watched kind, and List returns an empty list of it. For metadata only, that is a
	// PartialObjectMetadataList with its kind set.
	Object client.Object
	List   func() client.ObjectList
	// Client is called before each list and each watch. It may wait for a connection, and may return another client each time.
	Client func(context.Context) (client.WithWatch, error)
	// Select holds selectors of the watched objects. An API server of another cluster may ignore them: an object without the selected labels does not exist for
	// the source.
	Select []client.ListOption
	// Trim drops the parts of an object that the program does not read, except for the selected labels. It is called before any other code has the object.
	Trim func(client.Object)
	// Changed is called for each change: before is nil for a new object, after is nil for a deleted one. Calls for one object never overlap.
	Changed func(before, after client.Object)
	// Synced is called once Changed has been called for all objects that a namespace has at the start.
	Synced func(namespace string)
	// Refused is called when the API server refuses a list or a watch, each time; nil: both are tried again until the namespace is removed.
	Refused func(namespace string)
	// Resumed is called when the watch of a synced namespace works again after an interruption.
	Resumed func(namespace string)
}

// retry is the backoff of lists and watches. It starts short because rights in a namespace may be granted just after the namespace was created,
// and it stays short so that a peer that is back is observed soon.
var retry = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 3 * time.Second}

// Source watches the namespaces, and holds the objects that it knows.
type Source struct {
	options Options
	// labels are those of Select; nil if every object is watched.
	labels klabels.Selector

	mu     sync.RWMutex
	stores map[string]*namespaceStore
}

// New returns a source that watches nothing yet.
func New(o Options) *Source {
	var all client.ListOptions
	all.ApplyOptions(o.Select)
	return &Source{options: o, labels: all.LabelSelector, stores: map[string]*namespaceStore{}}
}

// Add starts to watch a namespace, until ctx ends or Remove is called. Adding it a second time changes nothing.
func (s *Source) Add(ctx context.Context, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stores[namespace] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	n := &namespaceStore{options: &s.options, labels: s.labels, namespace: namespace, stop: stop, objects: map[types.NamespacedName]client.Object{}}
	s.stores[namespace] = n
	go toolscache.NewReflectorWithOptions(n.listWatch(), s.options.Object, n, toolscache.ReflectorOptions{Name: "fanin", Backoff: &retry}).
		RunWithContext(n.refusal.quietly(ctx))
}

// Remove stops watching a namespace. It does not call Changed: the objects still exist, the source just no longer observes them.
func (s *Source) Remove(namespace string) {
	s.mu.Lock()
	n := s.stores[namespace]
	delete(s.stores, namespace)
	s.mu.Unlock()
	if n != nil {
		n.close()
	}
}

func (s *Source) store(namespace string) *namespaceStore {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.stores[namespace]; n != nil {
		return n
	}
	return s.stores[Every]
}

// Get returns an object, which the caller must not change; nil if the source does not know it.
func (s *Source) Get(key types.NamespacedName) client.Object {
	object, _ := s.Look(key)
	return object
}

// All returns the objects of a namespace, which the caller must not change.
func (s *Source) All(namespace string) []client.Object {
	n := s.store(namespace)
	if n == nil {
		return nil
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := slices.Collect(maps.Values(n.objects))
	if n.namespace == Every && namespace != Every {
		all = slices.DeleteFunc(all, func(object client.Object) bool { return object.GetNamespace() != namespace })
	}
	return all
}

// Has reports whether a namespace was added, and not removed since.
func (s *Source) Has(namespace string) bool { return s.store(namespace) != nil }

// Synced reports whether all objects of a namespace have been listed once.
func (s *Source) Synced(namespace string) bool {
	n := s.store(namespace)
	if n == nil {
		return false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.synced
}

// Current reports whether the namespace is synced and watched at this moment. Only then does a missing object mean that it does not exist.
func (s *Source) Current(namespace string) bool {
	n := s.store(namespace)
	if n == nil {
		return false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.current()
}

// Look returns an object, which the caller must not change, and whether its namespace was current at that moment: then nil means that it does not
// exist. Get and Current one after the other cannot prove that, because the objects may be listed in between.
func (s *Source) Look(key types.NamespacedName) (object client.Object, current bool) {
	n := s.store(key.Namespace)
	if n == nil {
		return nil, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.objects[key], n.current()
}

// namespaceStore holds the objects of one namespace. It implements cache.ReflectorStore, whose methods the reflector calls one at a time.
type namespaceStore struct {
	options   *Options
	labels    klabels.Selector
	namespace string
	stop      context.CancelFunc

	mu      sync.RWMutex
	objects map[types.NamespacedName]client.Object
	synced  bool
	closed  bool
	watches int
	// initial: the watch starts with all existing objects, and has not delivered them completely yet.
	initial bool
	// cut: the last watch ended before its timeout.
	cut     atomic.Bool
	refusal refusal
}

func (n *namespaceStore) current() bool { return n.synced && !n.closed && !n.initial && n.watches > 0 }

func (n *namespaceStore) close() {
	n.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed, n.objects = true, nil
}

func (n *namespaceStore) listWatch() *toolscache.ListWatch {
	inNamespace := func(options metav1.ListOptions) []client.ListOption {
		return append([]client.ListOption{&client.ListOptions{Namespace: n.namespace, Raw: &options}}, n.options.Select...)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			c, err := n.options.Client(ctx)
			if err != nil {
				return nil, err
			}
			if options.ResourceVersion == "0" {
				// Version 0 lists from the watch cache of an API server, which may be older than what this process already knew. It would then
				// take missing objects for deleted.
				options.ResourceVersion = ""
			}
			list := n.options.List()
			return list, n.refused(c.List(ctx, list, inNamespace(options)...))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			c, err := n.options.Client(ctx)
			if err != nil {
				return nil, err
			}
			initial := options.SendInitialEvents != nil && *options.SendInitialEvents
			if !initial && n.cut.Load() {
				if err := n.checkRestored(ctx, c, options.ResourceVersion); err != nil {
					return nil, err
				}
			}
			w, err := c.Watch(ctx, n.options.List(), inNamespace(options)...)
			if err != nil {
				return nil, n.refused(err)
			}
			n.refusal.end()
			n.watching(1, initial)
			start := time.Now()
			return &observedWatch{Interface: w, stopped: sync.OnceFunc(func() {
				timeout := options.TimeoutSeconds
				n.cut.Store(timeout == nil || time.Since(start) < time.Duration(*timeout)*time.Second-time.Second)
				n.watching(-1, false)
			})}, nil
		},
	}
}

// refused passes an error on, and reports a refusal.
func (n *namespaceStore) refused(err error) error {
	if n.options.Refused != nil && apierrors.IsForbidden(err) {
		n.options.Refused(n.namespace)
	}
	return err
}

func (n *namespaceStore) watching(more int, initial bool) {
	n.update(func() { n.watches, n.initial = n.watches+more, initial })
}

// checkRestored returns an error if the API server was restored from a backup, that is, if its resource version is now older than a version we
// know. A watch that resumes at a version newer than the restored store stays silent for hours, and objects lost with the store would still
// appear to exist. The error makes the reflector list again.
func (n *namespaceStore) checkRestored(ctx context.Context, c client.WithWatch, known string) error {
	list := n.options.List()
	if err := c.List(ctx, list, append([]client.ListOption{client.InNamespace(n.namespace), client.Limit(1)}, n.options.Select...)...); err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(list.GetResourceVersion(), known); err == nil && order < 0 {
		return apierrors.NewResourceExpired("the resource version of the API server has gone back: it was restored from a backup")
	}
	return nil
}

// update applies a change to the state of the watch, and calls Resumed if the namespace is current again.
func (n *namespaceStore) update(change func()) {
	n.mu.Lock()
	synced, before := n.synced, n.current()
	change()
	resumed := synced && !before && n.current() && !n.closed
	n.mu.Unlock()
	if resumed && n.options.Resumed != nil {
		n.options.Resumed(n.namespace)
	}
}

// observedWatch calls stopped when the reflector stops the watch.
type observedWatch struct {
	watch.Interface
	stopped func()
}

func (w *observedWatch) Stop() {
	w.stopped()
	w.Interface.Stop()
}

// selected reports whether an object has the selected labels. Otherwise the API server has ignored the selector.
func (n *namespaceStore) selected(object client.Object) bool {
	return n.labels == nil || n.labels.Matches(klabels.Set(object.GetLabels()))
}

// Transformer implements cache.TransformingStore. The reflector applies it to each object before it collects the object for Replace. Of an object that is not
// selected it keeps the key, which is no client.Object.
func (n *namespaceStore) Transformer() toolscache.TransformFunc {
	return func(in any) (any, error) {
		object, ok := in.(client.Object)
		if ok && !n.selected(object) {
			return &metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}, nil
		}
		if ok && n.options.Trim != nil {
			n.options.Trim(object)
		}
		return in, nil
	}
}

func (n *namespaceStore) Add(in any) error { return n.Update(in) }

func (n *namespaceStore) Update(in any) error {
	object, ok := in.(client.Object)
	if !ok {
		return nil
	}
	if !n.selected(object) {
		return n.Delete(object) // as if the API server reported that it does not match any more
	}
	if n.options.Trim != nil {
		n.options.Trim(object)
	}
	key := client.ObjectKeyFromObject(object)
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	before := n.objects[key]
	n.objects[key] = object
	n.mu.Unlock()
	n.options.Changed(before, object)
	return nil
}

func (n *namespaceStore) Delete(in any) error {
	object, ok := in.(client.Object)
	if !ok {
		return nil
	}
	key := client.ObjectKeyFromObject(object)
	n.mu.Lock()
	_, known := n.objects[key]
	delete(n.objects, key)
	closed := n.closed
	n.mu.Unlock()
	if !closed && known {
		if n.options.Trim != nil {
			n.options.Trim(object)
		}
		n.options.Changed(object, nil) // the object as it was when it was deleted
	}
	return nil
}

// Replace implements cache.ReflectorStore. It is called with all objects of the namespace.
func (n *namespaceStore) Replace(all []any, _ string) error {
	next := make(map[types.NamespacedName]client.Object, len(all))
	for _, in := range all {
		if object, ok := in.(client.Object); ok && n.selected(object) {
			if n.options.Trim != nil {
				n.options.Trim(object)
			}
			next[client.ObjectKeyFromObject(object)] = object
		}
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	last := n.objects
	n.objects = next
	n.mu.Unlock()
	for key, after := range next {
		if before := last[key]; before == nil || before.GetUID() != after.GetUID() || before.GetResourceVersion() != after.GetResourceVersion() {
			n.options.Changed(before, after)
		}
	}
	for key, before := range last {
		if next[key] == nil {
			n.options.Changed(before, nil)
		}
	}
	var first bool
	n.update(func() { first, n.synced, n.initial = !n.synced, true, false })
	if first && n.options.Synced != nil {
		n.options.Synced(n.namespace)
	}
	return nil
}

// Resync implements cache.ReflectorStore. The reflector has no resync period and never calls it.
func (n *namespaceStore) Resync() error { return nil }
