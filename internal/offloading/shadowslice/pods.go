// SPDX-License-Identifier: Apache-2.0

package shadowslice

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/endpoints"
)

// podsOfSlice is the index of ShadowEndpointSlices by the pods of this cluster that are their endpoints. Few slices have any.
const podsOfSlice = "pods"

// indexPods makes the cache know in which ShadowEndpointSlices a pod is an endpoint.
func indexPods(mgr manager.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &vkv1alpha1.ShadowEndpointSlice{}, podsOfSlice, func(object client.Object) []string {
		slice, ok := object.(*vkv1alpha1.ShadowEndpointSlice)
		if !ok {
			return nil
		}
		return endpoints.PodsOf(slice)
	})
	if err != nil {
		return fmt.Errorf("index shadow endpoint slices by their pods: %w", err)
	}
	return nil
}

// otherEndpoint passes changes of pods that concern endpoints.
var otherEndpoint = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return e.Object.GetLabels()[labels.ManagedBy] == labels.ManagedByShadowPod
	},
	DeleteFunc: func(e event.DeleteEvent) bool {
		return e.Object.GetLabels()[labels.ManagedBy] == labels.ManagedByShadowPod
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Pod)
		now, isNew := e.ObjectNew.(*corev1.Pod)
		if !ok || !isNew {
			return false
		}
		was, hadAddress := endpoints.PodOf(before, "")
		is, hasAddress := endpoints.PodOf(now, "")
		return hadAddress != hasAddress || !reflect.DeepEqual(was, is)
	},
}

// ofPod returns requests for the slices in which a pod is an endpoint.
func (r *reconciler) ofPod(ctx context.Context, pod client.Object) (all []reconcile.Request) {
	var list vkv1alpha1.ShadowEndpointSliceList
	if r.cached.List(ctx, &list, client.InNamespace(pod.GetNamespace()), client.MatchingFields{podsOfSlice: pod.GetName()}, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	for i := range list.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return all
}

// pods returns, by name, the pods of this cluster that are endpoints of a slice and run.
func (r *reconciler) pods(ctx context.Context, slice *vkv1alpha1.ShadowEndpointSlice) (map[string]endpoints.OwnPod, error) {
	all := map[string]endpoints.OwnPod{}
	for _, name := range endpoints.PodsOf(slice) {
		var pod corev1.Pod
		if err := r.cached.Get(ctx, types.NamespacedName{Namespace: slice.Namespace, Name: name}, &pod, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
			continue // its event reconciles the slice
		} else if err != nil {
			return nil, fmt.Errorf("read pod %s/%s: %w", slice.Namespace, name, err)
		}
		var node corev1.Node
		if pod.Spec.NodeName != "" {
			if err := r.cached.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("read node %s: %w", pod.Spec.NodeName, err)
			}
		}
		if of, runs := endpoints.PodOf(&pod, node.Labels[corev1.LabelTopologyZone]); runs {
			all[name] = of
		}
	}
	return all, nil
}
