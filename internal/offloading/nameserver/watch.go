// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/names"
)

// The role reads where pods of peers are, and nothing else of them: no rights to Secrets, and none to write.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list;watch

var (
	namespaceKind    = corev1.SchemeGroupVersion.WithKind("Namespace")
	namespaceMapKind = vkv1alpha1.GroupVersion.WithKind("NamespaceMap")
)

// CacheOptions restricts the cache to what the role reads: addresses of the pods of peers and of their API servers, remote namespaces, and the
// domains that peers have announced.
func CacheOptions() (cache.Options, error) {
	remote, err := klabels.NewRequirement(labels.RemoteClusterID, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}:              {Transform: trim, Label: klabels.SelectorFromSet(klabels.Set{labels.ManagedBy: labels.ManagedByShadowPod}), Field: asking},
		&corev1.Namespace{}:        {Transform: trim, Label: klabels.NewSelector().Add(*remote)},
		&vkv1alpha1.NamespaceMap{}: {Transform: trim, Label: klabels.SelectorFromSet(klabels.Set{labels.Replicated: "true"})},
	}}, nil
}

// asking selects the pods that can ask: those with an address that have not ended. What becomes of the others is not sent to this process, which each
// pod would otherwise cost twice as much.
var asking = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.podIP", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// trim keeps of a pod where it is and where its API server is, and of other objects whose they are: a peer decides how large its annotations are.
func trim(in any) (any, error) {
	switch object := in.(type) {
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion},
			Spec:       names.KeepAPIServer(&object.Spec),
			Status:     corev1.PodStatus{Phase: object.Status.Phase, PodIP: object.Status.PodIP, PodIPs: object.Status.PodIPs},
		}, nil
	case *metav1.PartialObjectMetadata:
		kept := &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion, DeletionTimestamp: object.DeletionTimestamp,
			Labels: map[string]string{labels.RemoteClusterID: object.Labels[labels.RemoteClusterID]}, Annotations: map[string]string{},
		}}
		for _, key := range []string{labels.ManagedByNamespaceMap, labels.OriginalName, labels.KeptForData, labels.ClusterDomain} {
			if value := object.Annotations[key]; value != "" {
				kept.Annotations[key] = value
			}
		}
		return kept, nil
	}
	return in, nil
}

// Watcher keeps Callers true.
type Watcher struct {
	callers *Callers
	reader  client.Reader
	here    names.Cluster
	dirty   chan struct{}
	synced  []toolscache.InformerSynced
	ready   chan struct{}
}

// Watch follows pods and remote namespaces of this cluster.
func Watch(ctx context.Context, cached cache.Cache, callers *Callers, here names.Cluster) (*Watcher, error) {
	w := &Watcher{callers: callers, reader: cached, here: here, dirty: make(chan struct{}, 1), ready: make(chan struct{})}
	mark := toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { w.mark() }, UpdateFunc: func(_, _ any) { w.mark() }, DeleteFunc: func(any) { w.mark() }}
	for _, watched := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{AddFunc: w.set, UpdateFunc: func(_, object any) { w.set(object) }, DeleteFunc: w.remove}},
		{metadata(namespaceKind), mark},
		{metadata(namespaceMapKind), mark},
	} {
		informer, err := cached.GetInformer(ctx, watched.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", watched.object, err)
		}
		registered, err := informer.AddEventHandler(watched.handler)
		if err != nil {
			return nil, fmt.Errorf("follow %T: %w", watched.object, err)
		}
		w.synced = append(w.synced, registered.HasSynced)
	}
	return w, nil
}

func metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

func (w *Watcher) mark() {
	select {
	case w.dirty <- struct{}{}:
	default: // it is marked
	}
}

func (w *Watcher) set(object any) {
	if pod, ok := object.(*corev1.Pod); ok {
		w.callers.Set(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, addressesOf(pod), names.APIServerOf(&pod.Spec))
	}
}

func (w *Watcher) remove(object any) {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
	if err == nil {
		w.callers.Set(types.NamespacedName{Namespace: namespace, Name: name}, nil, nil)
	}
}

// addressesOf returns the addresses of a pod that has not ended.
func addressesOf(pod *corev1.Pod) (all []netip.Addr) {
	if podphase.Final(pod.Status.Phase) {
		return nil
	}
	for _, podIP := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		if address, err := netip.ParseAddr(podIP.IP); err == nil {
			all = append(all, address.Unmap())
		}
	}
	return all
}

// Run follows changes of remote namespaces until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return nil
	}
	for first := true; ; first = false {
		if err := w.know(ctx); err != nil {
			return err
		}
		if first {
			close(w.ready)
		}
		select {
		case <-w.dirty:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ready is closed once everything is known that was there at the start.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Check fails until then.
func (w *Watcher) Check() error {
	select {
	case <-w.ready:
		return nil
	default:
		return errors.New("the pods of peers are not known yet")
	}
}

// know reads all remote namespaces.
func (w *Watcher) know(ctx context.Context) error {
	var namespaces, maps metav1.PartialObjectMetadataList
	namespaces.SetGroupVersionKind(namespaceKind)
	maps.SetGroupVersionKind(namespaceMapKind)
	if err := errors.Join(w.reader.List(ctx, &namespaces), w.reader.List(ctx, &maps)); err != nil {
		return fmt.Errorf("read what the remote namespaces are: %w", err)
	}
	domains := map[string]string{}
	for i := range maps.Items {
		domains[maps.Items[i].Namespace+"/"+maps.Items[i].Name] = maps.Items[i].Annotations[labels.ClusterDomain]
	}
	var all []metav1.Object
	for i := range namespaces.Items {
		all = append(all, &namespaces.Items[i])
	}
	w.callers.Know(names.Know(w.here, all, func(namespaceMap string) string { return domains[namespaceMap] }))
	return nil
}
