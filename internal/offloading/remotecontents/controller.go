// SPDX-License-Identifier: Apache-2.0

package remotecontents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingapply "liqo.io/liqo/apis/applyconfiguration/offloading/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/contents"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings/status,verbs=patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=list

const (
	// countTimeout bounds the answer to one request, for all its clusters: liqoctl waits a little longer.
	countTimeout = 10 * time.Second
	// countWorkers requests are answered, and as many remote namespaces read, at the same time.
	countWorkers = 16
	// pageSize and maxPages bound what is read of one kind in one namespace.
	pageSize, maxPages = 500, 100
)

// Options of the controller that counts the objects in remote namespaces.
type Options struct {
	// Consumer is the ID of this cluster.
	Consumer string
	// Reader returns a reader of a provider's API server, without a cache; an error if there is no connection to it.
	Reader func(clusterID string) (client.Reader, error)
	// Timeout of one answer. 0: countTimeout.
	Timeout time.Duration
}

// reconciler answers the annotation labels.CountRemoteContents in the status of a NamespaceOffloading. An administrator thus needs no
// access to a provider: this process has the connection. Without a request, it reads and writes nothing.
type reconciler struct {
	options Options
	client  client.Client
	live    client.Reader
	own     *ssa.Applier
	reading chan struct{}
}

// Setup registers the controller.
func Setup(mgr manager.Manager, o Options) error {
	if o.Timeout == 0 {
		o.Timeout = countTimeout
	}
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		own: ssa.NewApplier(mgr.GetClient(), labels.OwnerRemoteContents), reading: make(chan struct{}, countWorkers),
	}
	err := builder.ControllerManagedBy(mgr).Named("remotecontents").
		WithOptions(controller.Options{MaxConcurrentReconciles: countWorkers, RateLimiter: kubemanager.RetryBackoff()}).
		For(&offloadingv1alpha1.NamespaceOffloading{}, builder.WithPredicates(requestChanged)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of the contents of remote namespaces: %w", err)
	}
	return nil
}

// requestChanged passes new and withdrawn requests, and after a start of the process those that are there.
var requestChanged = predicate.Funcs{
	CreateFunc: func(made event.CreateEvent) bool {
		offloading, ok := made.Object.(*offloadingv1alpha1.NamespaceOffloading)
		return !ok || offloading.Annotations[labels.CountRemoteContents] != "" || offloading.Status.RemoteContents != nil
	},
	UpdateFunc: func(change event.UpdateEvent) bool {
		return change.ObjectOld.GetUID() != change.ObjectNew.GetUID() ||
			change.ObjectOld.GetAnnotations()[labels.CountRemoteContents] != change.ObjectNew.GetAnnotations()[labels.CountRemoteContents]
	},
}

// Reconcile answers the request on one NamespaceOffloading, once, or removes the answer to a request that was withdrawn.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var offloading offloadingv1alpha1.NamespaceOffloading
	if err := r.client.Get(ctx, request.NamespacedName, &offloading); err != nil {
		r.own.Forget(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if offloading.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	asked, clusters := contents.Asked(offloading.Annotations)
	answer := offloading.Status.RemoteContents
	switch {
	case asked == "" && answer == nil, asked != "" && answer != nil && answer.Request == asked:
		return reconcile.Result{}, nil
	case asked == "":
		return reconcile.Result{}, r.answer(ctx, &offloading, nil)
	}
	found, err := r.count(ctx, offloading.Namespace, clusters)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.answer(ctx, &offloading, &offloadingv1alpha1.RemoteContents{Request: asked, Clusters: found})
}

// answer writes the contents into the status, or removes them.
func (r *reconciler) answer(ctx context.Context, offloading *offloadingv1alpha1.NamespaceOffloading, found *offloadingv1alpha1.RemoteContents) error {
	intent := offloadingapply.NamespaceOffloading(offloading.Name, offloading.Namespace).WithUID(offloading.UID)
	if found != nil {
		fields := &offloadingapply.RemoteContentsApplyConfiguration{}
		if text, err := json.Marshal(found); err != nil {
			return fmt.Errorf("encode the contents: %w", err)
		} else if err := json.Unmarshal(text, fields); err != nil {
			return fmt.Errorf("encode the contents: %w", err)
		}
		intent.WithStatus(offloadingapply.NamespaceOffloadingStatus().WithRemoteContents(fields))
	}
	err := r.own.ApplyStatusTo(ctx, intent, offloading)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the object was deleted
	}
	return err
}

// count reads the remote namespaces of a local one in these clusters, in parallel. What is there is read live: the cache may miss a remote
// namespace, or the volume whose data a claim holds.
func (r *reconciler) count(ctx context.Context, namespace string, clusters []string) (map[string]offloadingv1alpha1.RemoteNamespaceContents, error) {
	var maps vkv1alpha1.NamespaceMapList
	if err := r.live.List(ctx, &maps, client.MatchingLabels{labels.Replication: "true"}); err != nil {
		return nil, fmt.Errorf("list namespace maps: %w", err)
	}
	held := slices.DeleteFunc(contents.HeldBy(maps.Items, namespace), func(entry contents.Held) bool { return !slices.Contains(clusters, entry.Cluster) })
	volumes, err := r.volumesOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	answers := make([]offloadingv1alpha1.RemoteNamespaceContents, len(held))
	var readers sync.WaitGroup
	for i, entry := range held {
		readers.Go(func() {
			tally := &contents.Tally{Consumer: r.options.Consumer, Volumes: volumes[entry.ClusterID]}
			if err := r.read(ctx, entry, tally); err != nil {
				answers[i] = contents.Unread(entry.Namespace, err)
				return
			}
			answers[i] = tally.Contents(entry.Namespace)
		})
	}
	readers.Wait()
	found := map[string]offloadingv1alpha1.RemoteNamespaceContents{}
	for i, entry := range held {
		found[entry.Cluster] = answers[i]
	}
	return found, nil
}

// volumesOf returns, per cluster, the names of the volumes of a namespace whose data is there.
func (r *reconciler) volumesOf(ctx context.Context, namespace string) (map[string][]string, error) {
	var all corev1.PersistentVolumeList
	if err := r.live.List(ctx, &all, client.HasLabels{labels.RemoteClusterID}); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	names := map[string][]string{}
	for i := range all.Items {
		if owner := all.Items[i].Spec.ClaimRef; owner != nil && owner.Namespace == namespace {
			id := all.Items[i].Labels[labels.RemoteClusterID]
			names[id] = append(names[id], all.Items[i].Name)
		}
	}
	return names, nil
}

// read counts the objects in a remote namespace. It reads metadata only, so it never sees the data of Secrets.
func (r *reconciler) read(ctx context.Context, held contents.Held, tally *contents.Tally) error {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return errors.New("too many remote namespaces are read at this moment; run the command again")
	}
	reader, err := r.options.Reader(held.ClusterID)
	if err != nil {
		return err
	}
	for _, kind := range contents.Kinds() {
		if err := readKind(ctx, reader, held.Namespace, kind, tally); err != nil {
			return err
		}
	}
	return nil
}

func readKind(ctx context.Context, reader client.Reader, namespace string, kind schema.GroupVersionKind, tally *contents.Tally) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for range maxPages {
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("list objects of kind %s in %s: %w; see: liqoctl status peer", kind.Kind, namespace, err)
		}
		for i := range list.Items {
			tally.Add(kind.Kind, &list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
	}
	return fmt.Errorf("the list of kind %s in %s does not end after %d pages", kind.Kind, namespace, maxPages)
}
