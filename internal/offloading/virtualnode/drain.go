// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/finalizer"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/providers"
)

// tearDown takes the next step to remove the node, and returns when to reconcile again.
func (r *reconciler) tearDown(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, k kubelet.Kubelet) (reconcile.Result, error) {
	f, rights, err := r.observe(ctx, slice, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	// Before any pod is evicted, because the condition records when the drain started. The removal of an idle node skips this write.
	if slice.DeletionTimestamp == nil || len(f.pods) > 0 {
		if err := r.writeCondition(ctx, f); err != nil {
			return reconcile.Result{}, err
		}
	}
	next := nextTeardown(f)
	for i := range next.evict {
		if err := r.evict(ctx, &next.evict[i]); err != nil {
			log.FromContext(ctx).Error(err, "pod not evicted") // evicted again in the next pass; a backoff could miss the deadline
		}
	}
	if len(next.remove) > 0 {
		err = r.remove(ctx, slice, next.remove)
	}
	if next.dismantle {
		err = r.dismantle(ctx, f, rights)
	}
	if next.release {
		err = r.release(ctx, f)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if next.dismantle {
		r.cleared.Store(slice.UID, true)
	}
	if next.done && slice.DeletionTimestamp != nil {
		r.cleared.Delete(slice.UID)
		r.created.Delete(slice.UID)
		_, err := finalizer.Patch(ctx, r.client, slice, labels.FinalizerNode, controllerutil.RemoveFinalizer)
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next.requeueAfter}, nil
}

// observe reads from the API server, because the cache may miss new objects. Each such list waits up to 100 ms until the API server's cache has the
// last write, so the lists run in parallel, and rights are listed live only until all were deleted once: after that, the cache can only
// over-report, which is safe. In the final pass, observe checks for a running virtual kubelet before the node, and cordons the node before it
// counts the pods, so neither a node nor a pod can appear afterwards.
func (r *reconciler) observe(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, k kubelet.Kubelet) (*facts, []client.Object, error) {
	f := &facts{slice: slice, now: r.options.Now(), drainDeadline: r.options.DrainDeadline, drainUnreached: r.options.DrainDeadlineUnreachable}
	_, f.cleared = r.cleared.Load(slice.UID)
	var rights []client.Object
	findRights := func(reader client.Reader) (err error) {
		rights, err = r.rights(ctx, reader, k)
		return err
	}
	findKubelet := func() (err error) {
		if f.deployment, err = r.deployment(ctx, k); err == nil {
			f.kubelets, err = r.kubelets(ctx, k)
		}
		return err
	}
	findNode := func() (err error) {
		if f.node, err = r.node(ctx, r.live, slice); err != nil || f.node == nil {
			return err
		}
		if err = r.cordon(ctx, f.node, true); err == nil {
			f.pods, err = r.pods(ctx, f.node.Name)
		}
		return err
	}
	findMap := func(reader client.Reader) (err error) {
		f.namespaces, err = providers.MapOf(ctx, reader, k.Namespace, k.Peer.ClusterID)
		return err
	}
	var err error
	if f.cleared {
		if err = errors.Join(findKubelet(), findRights(r.client), findMap(r.client)); err == nil {
			err = findNode()
		}
	} else {
		err = inParallel(findKubelet, func() error { return findRights(r.live) }, findNode, func() error { return findMap(r.live) })
	}
	f.rights = len(rights)
	return f, rights, err
}

// inParallel calls all functions and joins their errors.
func inParallel(all ...func() error) error {
	failures := make([]error, len(all))
	var group sync.WaitGroup
	for i, step := range all {
		group.Go(func() { failures[i] = step() })
	}
	group.Wait()
	return errors.Join(failures...)
}

// pods returns the pods that have to leave the node.
func (r *reconciler) pods(ctx context.Context, node string) (all []corev1.Pod, err error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	for i := range pods.Items {
		if mustLeave(&pods.Items[i]) {
			all = append(all, pods.Items[i])
		}
	}
	return all, nil
}

// deployment returns the Deployment of the virtual kubelet; nil if there is none.
func (r *reconciler) deployment(ctx context.Context, k kubelet.Kubelet) (*metav1.PartialObjectMetadata, error) {
	var found metav1.PartialObjectMetadata
	found.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: kubelet.Name}, &found); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for the virtual kubelet in %s: %w", k.Namespace, err)
	}
	return &found, nil
}

// kubelets returns the pods of the virtual kubelet from the cache, which may miss one: no decision needs proof that there are none.
func (r *reconciler) kubelets(ctx context.Context, k kubelet.Kubelet) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(k.Namespace), client.MatchingLabels{labels.ClusterID: k.Peer.ClusterID}); err != nil {
		return nil, fmt.Errorf("list pods of the virtual kubelet in %s: %w", k.Namespace, err)
	}
	return pods.Items, nil
}

// cordon makes the node unschedulable, or undoes that. It applies the field, so undoing it leaves a cordon of an administrator in place. With the
// UID, the apply cannot create a node.
func (r *reconciler) cordon(ctx context.Context, node *corev1.Node, on bool) error {
	if node.Spec.Unschedulable == on {
		return nil
	}
	intent := coreapply.Node(node.Name).WithUID(node.UID)
	if on {
		intent.WithSpec(coreapply.NodeSpec().WithUnschedulable(true))
	}
	err := r.client.Apply(ctx, intent, client.FieldOwner(labels.OwnerVirtualNode), client.ForceOwnership)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("cordon node %s: %w", node.Name, err)
	}
	return nil
}

// newEvictions returns a client whose evictions return at once when a disruption budget refuses them. An ordinary client follows the Retry-After of
// the API server: it retries ten times after ten seconds each, and the drain deadline passes meanwhile.
func newEvictions(mgr manager.Manager) (client.Client, error) {
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutRetryAfter{next} })
	return client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}

type withoutRetryAfter struct{ next http.RoundTripper }

func (i withoutRetryAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(request)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// evict evicts a pod. A refusal by a disruption budget is not an error: eviction is retried until the deadline.
func (r *reconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}}
	err := r.evictions.SubResource("eviction").Create(ctx, pod, eviction)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// remove deletes pods after their deadline, without a grace period.
func (r *reconciler) remove(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, pods []corev1.Pod) error {
	var names []string
	var failures []error
	for i := range pods {
		pod := &pods[i]
		names = append(names, pod.Namespace+"/"+pod.Name)
		err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	log.FromContext(ctx).Info("pods removed after the drain deadline", "node", slice.Spec.NodeName, "pods", names)
	r.events.Eventf(slice, nil, corev1.EventTypeWarning, reasons.DrainDeadline, "Drain",
		"%d pods did not leave node %s in time and were deleted: %s", len(names), slice.Spec.NodeName, printable.Note(strings.Join(names, ", ")))
	return errors.Join(failures...)
}

// dismantle deletes everything in parallel. The virtual kubelet does not register a node again for a slice in this state.
func (r *reconciler) dismantle(ctx context.Context, f *facts, rights []client.Object) error {
	var all []func() error
	drop := func(object client.Object, options ...client.DeleteOption) {
		if object.GetDeletionTimestamp() != nil {
			return
		}
		options = append(options, client.Preconditions{UID: new(object.GetUID())})
		all = append(all, func() error {
			if err := r.client.Delete(ctx, object, options...); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("delete %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
			}
			return nil
		})
	}
	if f.deployment != nil {
		drop(f.deployment, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if f.node != nil {
		drop(f.node)
	}
	if f.namespaces != nil {
		drop(f.namespaces)
	}
	for _, object := range rights {
		drop(object)
	}
	// The garbage collector deletes the pod later. While the Deployment exists, its ReplicaSet would create another pod.
	for i := range f.kubelets {
		if f.deployment == nil {
			drop(&f.kubelets[i], client.GracePeriodSeconds(1))
		}
	}
	err := inParallel(all...)
	if err == nil && f.deployment != nil && f.deployment.DeletionTimestamp == nil {
		r.events.Eventf(
			f.slice, nil, corev1.EventTypeNormal, reasons.VkDeleted, "DeleteVirtualKubelet",
			"deleted the virtual kubelet of node %s in namespace %s", f.slice.Spec.NodeName, f.slice.Namespace,
		)
	}
	return err
}

// release makes the replicator release the NamespaceMap without the provider.
func (r *reconciler) release(ctx context.Context, f *facts) error {
	before := f.namespaces.DeepCopy()
	metav1.SetMetaDataAnnotation(&f.namespaces.ObjectMeta, labels.ForceUnpeer, "true")
	if err := r.client.Patch(ctx, f.namespaces, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate namespace map %s/%s: %w", f.namespaces.Namespace, f.namespaces.Name, err)
	}
	return nil
}

// rights returns the service account and the bindings of a virtual kubelet. It finds them by label, because the name of the peer may be unknown by
// now, and only in the namespaces in which we create them: objects with these labels elsewhere are not ours to delete.
func (r *reconciler) rights(ctx context.Context, reader client.Reader, k kubelet.Kubelet) (all []client.Object, err error) {
	mine := client.MatchingLabels{labels.ClusterID: k.Peer.ClusterID, labels.AppName: kubelet.Name}
	var cluster rbacv1.ClusterRoleBindingList
	var tenants, leases, callers rbacv1.RoleBindingList
	var accounts corev1.ServiceAccountList
	err = inParallel(
		func() error { return reader.List(ctx, &cluster, mine) },
		func() error { return reader.List(ctx, &tenants, mine, client.InNamespace(k.Namespace)) },
		func() error { return reader.List(ctx, &leases, mine, client.InNamespace(kubelet.LeaseSpace)) },
		func() error { return reader.List(ctx, &callers, mine, client.InNamespace(kubelet.CallersSpace)) },
		func() error { return reader.List(ctx, &accounts, mine, client.InNamespace(k.Namespace)) },
	)
	if err != nil {
		return nil, fmt.Errorf("list rights of the virtual kubelet in %s: %w", k.Namespace, err)
	}
	for i := range cluster.Items {
		if strings.HasPrefix(cluster.Items[i].Name, kubelet.BindingPrefix) {
			all = append(all, &cluster.Items[i])
		}
	}
	for _, list := range []*rbacv1.RoleBindingList{&tenants, &leases, &callers} {
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	for i := range accounts.Items {
		all = append(all, &accounts.Items[i])
	}
	return all, nil
}
