// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// tearDown takes one step towards no node, and says when to look again.
func (r *nodeReconciler) tearDown(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, k kubelet) (reconcile.Result, error) {
	f, err := r.look(ctx, slice, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := nextTeardown(f)
	if slice.DeletionTimestamp == nil {
		err = r.say(ctx, f)
	}
	for i := range next.evict {
		err = errors.Join(err, r.evict(ctx, &next.evict[i]))
	}
	if len(next.remove) > 0 {
		err = errors.Join(err, r.remove(ctx, slice, next.remove))
	}
	if next.dismantle {
		err = errors.Join(err, r.dismantle(ctx, f, k))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if next.done && slice.DeletionTimestamp != nil {
		return reconcile.Result{}, r.patchFinalizer(ctx, slice, controllerutil.RemoveFinalizer)
	}
	return reconcile.Result{RequeueAfter: next.again}, nil
}

// look asks the API server itself: what a cache has not heard of may be there all the same. The node is
// cordoned before its pods are counted, so that none comes after.
func (r *nodeReconciler) look(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, k kubelet) (*facts, error) {
	f := &facts{slice: slice, now: r.options.Now(), drainDeadline: r.options.DrainDeadline, drainUnreached: r.options.DrainDeadlineUnreachable}
	var err error
	if f.node, err = r.node(ctx, r.live, slice); err != nil {
		return nil, err
	}
	if f.node != nil {
		if err := r.cordon(ctx, f.node); err != nil {
			return nil, err
		}
		var pods corev1.PodList
		if err := r.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": f.node.Name}); err != nil {
			return nil, fmt.Errorf("list pods of node %s: %w", f.node.Name, err)
		}
		for i := range pods.Items {
			if mustLeave(&pods.Items[i]) {
				f.pods = append(f.pods, pods.Items[i])
			}
		}
	}
	var deployment metav1.PartialObjectMetadata
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err = r.live.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: kubeletName}, &deployment)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("look for the virtual kubelet in %s: %w", k.namespace, err)
	}
	f.deployed = err == nil
	kubelets, err := r.kubelets(ctx, k)
	f.kubelets = len(kubelets)
	return f, err
}

func (r *nodeReconciler) kubelets(ctx context.Context, k kubelet) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(k.namespace), client.MatchingLabels{labels.AppName: kubeletName}); err != nil {
		return nil, fmt.Errorf("list pods of the virtual kubelet in %s: %w", k.namespace, err)
	}
	return pods.Items, nil
}

func (r *nodeReconciler) cordon(ctx context.Context, node *corev1.Node) error {
	if node.Spec.Unschedulable {
		return nil
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable = true
	if err := r.client.Patch(ctx, node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cordon node %s: %w", node.Name, err)
	}
	return nil
}

// evict asks a pod to leave. That a disruption budget says no is not an error: it is asked again until the deadline.
func (r *nodeReconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}}
	err := r.client.SubResource("eviction").Create(ctx, pod, eviction)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// remove deletes pods that had their time, without waiting for anybody.
func (r *nodeReconciler) remove(ctx context.Context, slice *sharingv1alpha1.ResourceSlice, pods []corev1.Pod) error {
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
	r.events.Eventf(slice, nil, corev1.EventTypeWarning, "DrainDeadline", "Drain",
		"%d pods did not leave node %s in time and were deleted: %s", len(names), slice.Spec.NodeName, shorten(strings.Join(names, ", ")))
	return errors.Join(failures...)
}

// shorten keeps a text within what an event may hold.
func shorten(text string) string {
	const most = 800
	if len(text) > most {
		return text[:most] + " ..."
	}
	return text
}

// dismantle takes everything away at once: the virtual kubelet does not register a node for a slice like this one.
func (r *nodeReconciler) dismantle(ctx context.Context, f *facts, k kubelet) error {
	var failures []error
	drop := func(object client.Object, options ...client.DeleteOption) {
		err := r.client.Delete(ctx, object, options...)
		if apierrors.IsForbidden(err) {
			// Somebody deletes the whole namespace, our right in it included. What counts is what is there at the next look.
			log.FromContext(ctx).Info("not deleted", "object", fmt.Sprintf("%T", object), "namespace", object.GetNamespace(), "reason", err.Error())
			return
		}
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("delete %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err))
		}
	}
	if f.deployed {
		drop(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: kubeletName}}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if f.node != nil {
		drop(f.node, client.Preconditions{UID: &f.node.UID})
	}
	// The garbage collector would delete the pod, too, but only when it has noticed.
	kubelets, err := r.kubelets(ctx, k)
	if err != nil {
		return err
	}
	for i := range kubelets {
		if kubelets[i].DeletionTimestamp == nil {
			drop(&kubelets[i], client.Preconditions{UID: &kubelets[i].UID}, client.GracePeriodSeconds(1))
		}
	}
	bindings, err := r.bindings(ctx, k)
	if err != nil {
		return err
	}
	for _, binding := range bindings {
		drop(binding)
	}
	drop(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: kubeletName}})
	return errors.Join(failures...)
}

// bindings of the virtual kubelet, found by their labels: the peer's name may be forgotten by now.
func (r *nodeReconciler) bindings(ctx context.Context, k kubelet) (all []client.Object, err error) {
	mine := client.MatchingLabels{labels.ClusterID: k.peer.ClusterID, labels.AppName: kubeletName}
	var cluster rbacv1.ClusterRoleBindingList
	var spaces rbacv1.RoleBindingList
	if err := errors.Join(r.client.List(ctx, &cluster, mine), r.client.List(ctx, &spaces, mine)); err != nil {
		return nil, fmt.Errorf("list bindings of the virtual kubelet in %s: %w", k.namespace, err)
	}
	for i := range cluster.Items {
		all = append(all, &cluster.Items[i])
	}
	for i := range spaces.Items {
		all = append(all, &spaces.Items[i])
	}
	return all, nil
}
