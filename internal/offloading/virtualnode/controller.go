// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sharingapply "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/finalizer"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/networks"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/provider"
)

// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch;patch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices/status,verbs=patch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=serviceaccounts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=apps,resources=deployments,verbs=create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings;clusterrolebindings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet;liqo-virtual-kubelet-tenant;liqo-virtual-kubelet-lease,verbs=bind
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,resourceNames=extension-apiserver-authentication-reader,verbs=bind

// rightsDelay is how long a new right may take until the API server applies it. Creation times have whole seconds.
const rightsDelay = 3 * time.Second

// Options of the controller.
type Options struct {
	Local   discoveryv1alpha1.ClusterIdentity
	Kubelet kubelet.Options
	// CheckNetwork makes nodes Ready only while the network fabric works.
	CheckNetwork bool
	// OwnNetworks are those of this cluster's pods and Services, as far as they are known.
	OwnNetworks                           []netip.Prefix
	NodeExtraLabels, NodeExtraAnnotations map[string]string
	// DrainDeadline is how long pods may take to leave when a peering ends; DrainDeadlineUnreachable counts if the provider does not answer.
	DrainDeadline, DrainDeadlineUnreachable time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// reconciler keeps the virtual kubelet of each slice, and removes the virtual node.
type reconciler struct {
	options Options
	client  client.Client
	live    client.Reader
	own     *ssa.Applier
	// cleared has the UIDs of slices for which dismantle has succeeded once.
	cleared sync.Map
	// created has the UIDs of slices whose virtual kubelet was reported as created, because the cache may still lack the new Deployment.
	created sync.Map
	// evictions evicts pods: its requests do not wait for Retry-After.
	evictions client.Client
	events    events.EventRecorder
}

// Setup registers the controller of virtual nodes.
func Setup(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		own: ssa.NewApplier(mgr.GetClient(), labels.OwnerVirtualNode), events: mgr.GetEventRecorder("liqo-virtualnode"),
	}
	var err error
	if r.evictions, err = newEvictions(mgr); err != nil {
		return fmt.Errorf("client for evictions: %w", err)
	}
	ours := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[labels.Replication] == "true"
	})
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	ofPeer := handler.EnqueueRequestsFromMapFunc(r.slicesOfPeer)
	err = builder.ControllerManagedBy(mgr).Named("virtualnode").
		For(&sharingv1alpha1.ResourceSlice{}, builder.WithPredicates(ours)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 10,
			RateLimiter:             kubemanager.RetryBackoff(),
		}).
		// A slice may wait for another one to be deleted.
		Watches(&sharingv1alpha1.ResourceSlice{}, handler.EnqueueRequestsFromMapFunc(r.slicesBeside), builder.WithPredicates(ours, gone)).
		// A slice may wait for its remote namespaces.
		Watches(&vkv1alpha1.NamespaceMap{}, handler.EnqueueRequestsFromMapFunc(r.slicesBeside), builder.WithPredicates(ours, gone)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(r.slicesOfForeignCluster), changed).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.slicesOfNode)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.slicesOfPod)).
		Watches(&appsv1.Deployment{}, ofPeer, changed).
		Watches(&corev1.ServiceAccount{}, ofPeer).
		Watches(&rbacv1.RoleBinding{}, ofPeer).
		Watches(&rbacv1.ClusterRoleBinding{}, ofPeer).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of virtual nodes: %w", err)
	}
	return nil
}

// Reconcile brings the virtual kubelet and node of one slice to their desired state.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var slice sharingv1alpha1.ResourceSlice
	if err := r.client.Get(ctx, request.NamespacedName, &slice); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	held := controllerutil.ContainsFinalizer(&slice, labels.FinalizerNode)
	if slice.Labels[labels.Replication] != "true" || slice.DeletionTimestamp != nil && !held {
		return reconcile.Result{}, nil
	}
	if first, err := r.served(ctx, slice.Namespace); err != nil || first != slice.Name {
		return reconcile.Result{}, errors.Join(err, r.writeUnserved(ctx, &slice, first))
	}
	fc, err := peers.ForeignCluster(ctx, r.client, slice.Spec.ProviderClusterID)
	if err != nil {
		return reconcile.Result{}, err
	}
	peer := provider.PeerOf(fc, &slice)
	if peer == nil {
		if slice.DeletionTimestamp != nil { // another client added our finalizer
			_, err = finalizer.Patch(ctx, r.client, &slice, labels.FinalizerNode, controllerutil.RemoveFinalizer)
		}
		return reconcile.Result{}, err
	}
	k := kubelet.Kubelet{
		Options: r.options.Kubelet, Local: r.options.Local, Peer: *peer, Namespace: slice.Namespace, Slice: slice.Name, Node: slice.Spec.NodeName,
		CheckNetwork: r.options.CheckNetwork, NodeLabels: r.options.NodeExtraLabels, NodeNote: r.options.NodeExtraAnnotations,
	}
	if provider.Wanted(&slice) {
		if k.RemoteNetworks, err = r.remoteNetworks(ctx, fc); err != nil {
			return reconcile.Result{}, err
		}
		err := r.ensure(ctx, &slice, k, held)
		if apierrors.IsForbidden(err) && young(&slice, r.options.Now()) {
			// Our right in a new tenant namespace is new: the API server applies it after some milliseconds.
			return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil
		}
		return reconcile.Result{}, err
	}
	return r.tearDown(ctx, &slice, k)
}

// remoteNetworks returns the networks of a peer that another network than the fabric joins to this cluster.
func (r *reconciler) remoteNetworks(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster) ([]netip.Prefix, error) {
	if r.options.CheckNetwork {
		return nil, nil // the virtual kubelet reads those that were agreed
	}
	own, err := networks.Read(ctx, r.client, r.options.OwnNetworks)
	if err != nil {
		return nil, err
	}
	return networks.External(fc, own), nil
}

// ensure deploys the virtual kubelet, and reports the state of its node in the slice.
func (r *reconciler) ensure(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, k kubelet.Kubelet, held bool) error {
	if !held {
		if written, err := finalizer.Patch(ctx, r.client, slice, labels.FinalizerNode, controllerutil.AddFinalizer); err != nil || !written {
			return err
		}
	}
	r.cleared.Delete(slice.UID)
	for _, part := range k.Parts() {
		var live client.Object = part.Empty
		key := client.ObjectKeyFromObject(live)
		err := r.client.Get(ctx, key, live)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look for %T %s: %w", live, key, err)
		}
		_, isDeployment := live.(*appsv1.Deployment)
		creates := isDeployment && apierrors.IsNotFound(err)
		if err := r.own.ApplyTo(ctx, part.Intent, live); err != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil // the tenant namespace is being deleted, and its event follows
			}
			return err
		}
		if creates {
			if _, reported := r.created.LoadOrStore(slice.UID, true); !reported {
				r.events.Eventf(
					slice, nil, corev1.EventTypeNormal, reasons.VkCreated, "CreateVirtualKubelet",
					"created the virtual kubelet of node %s in namespace %s", k.Node, k.Namespace,
				)
			}
		}
	}
	f := &facts{slice: slice, now: r.options.Now()}
	var err error
	if f.node, err = r.node(ctx, r.client, slice); err != nil {
		return err
	}
	if f.node != nil && f.node.Spec.Unschedulable && cordoned(f.node) {
		if err := r.cordon(ctx, f.node, false); err != nil { // the provider grants again
			return err
		}
	}
	return r.writeCondition(ctx, f)
}

// node returns the virtual node of the slice; nil if there is none, or if the node of this name is not ours.
func (r *reconciler) node(ctx context.Context, reader client.Reader, slice *sharingv1alpha1.ResourceSlice) (*corev1.Node, error) {
	var node corev1.Node
	err := reader.Get(ctx, client.ObjectKey{Name: slice.Spec.NodeName}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for node %s: %w", slice.Spec.NodeName, err)
	case node.Labels[labels.Type] != labels.TypeVirtualNode || node.Labels[labels.RemoteClusterID] != slice.Spec.ProviderClusterID:
		return nil, nil // unmanaged, or of another cluster
	}
	return &node, nil
}

// writeCondition writes the condition if it has changed.
func (r *reconciler) writeCondition(ctx context.Context, f *facts) error {
	return r.write(ctx, f.slice, nodeCondition(f))
}

func (r *reconciler) write(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, condition metav1.Condition) error {
	before := meta.FindStatusCondition(slice.Status.Conditions, condition.Type)
	if before != nil && before.Status == condition.Status && before.Reason == condition.Reason && before.Message == condition.Message {
		return nil
	}
	intent := sharingapply.ResourceSlice(slice.Name, slice.Namespace).WithUID(slice.UID).WithStatus(sharingapply.ResourceSliceStatus().
		WithConditions(metaapply.Condition().WithType(condition.Type).WithStatus(condition.Status).WithReason(condition.Reason).
			WithMessage(condition.Message).WithLastTransitionTime(condition.LastTransitionTime)))
	err := r.own.ApplyStatusTo(ctx, intent, slice)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it was deleted or replaced
	}
	return err
}

// writeUnserved reports in a slice why it has no virtual node.
func (r *reconciler) writeUnserved(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, first string) error {
	if first == "" || !provider.Wanted(slice) {
		return nil
	}
	f := &facts{slice: slice, now: r.options.Now()}
	condition := nodeCondition(f)
	condition.Reason = sharingv1alpha1.ReasonNodeNotReady
	condition.Message = fmt.Sprintf("Liqo supports one virtual node per remote cluster, and ResourceSlice %s has it; delete one of the two", first)
	return r.write(ctx, slice, condition)
}
