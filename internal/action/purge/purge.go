// SPDX-License-Identifier: Apache-2.0

// Package purge removes the leftovers of Liqo from a cluster in which no process of Liqo runs any more, and lists the objects
// that it could not remove.
//
// It must not know how Liqo was installed, only which objects can be left. Its proof is the test of package install, which
// leaves all of them.
package purge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
)

// groups of our resource definitions.
var groups = []string{"discovery.liqo.io", "net.liqo.io", "offloading.liqo.io", "sharing.liqo.io", "storage.liqo.io", "virtualkubelet.liqo.io"}

// finalizers of ours. The controllers that honour them no longer run during a purge.
var finalizers = []string{
	labels.FinalizerPeer, labels.FinalizerReplication, labels.FinalizerNode, labels.FinalizerGrant, labels.FinalizerPodEnd, labels.FinalizerPodGone,
	labels.FinalizerNamespaceOffloading, labels.FinalizerNamespaceMap, labels.FinalizerMove,
}

// interval of polling for a deletion.
const interval = 50 * time.Millisecond

// protected namespaces belong to the cluster, whatever was installed in them.
var protected = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// Purge removes all leftovers of Liqo, waits until they are gone, and returns their number. The order matters: first the state
// on the nodes, while agents still run; then webhooks and the aggregated API, because no process answers them any more; then custom resources, while
// their definitions exist; then the definitions and namespaces. installed means that Liqo was installed in the namespace until now.
func Purge(ctx context.Context, c client.Client, namespace string, installed bool, progress action.Progress) (int, error) {
	all, err := clusterWide(ctx, c)
	if err != nil {
		return 0, err
	}
	definitions, err := ourDefinitions(ctx, c)
	if err != nil {
		return 0, err
	}
	if err := freeNodes(ctx, c, namespace, definitions); err != nil {
		return 0, err
	}
	for _, object := range all {
		if err := erase(ctx, c, object); err != nil {
			return 0, err
		}
	}
	for i := range definitions {
		if _, err := empty(ctx, c, &definitions[i]); err != nil {
			return 0, err
		}
		all = append(all, &definitions[i])
	}
	if err := releasePods(ctx, c); err != nil {
		return 0, err
	}
	namespaces, err := ourNamespaces(ctx, c, namespace, installed, progress)
	if err != nil {
		return 0, err
	}
	all = append(all, namespaces...)
	for _, object := range all {
		if err := erase(ctx, c, object); err != nil {
			return 0, err
		}
	}
	for _, object := range all {
		if err := gone(ctx, c, object); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// erase deletes exactly this object, if it still exists.
func erase(ctx context.Context, c client.Client, object client.Object) error {
	uid := object.GetUID()
	err := c.Delete(ctx, object, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict means another UID: this object is gone
		return nil
	}
	return fmt.Errorf("delete %s %s: %w", kindOf(object, c.Scheme()), object.GetName(), err)
}

func gone(ctx context.Context, c client.Client, object client.Object) error {
	uid := object.GetUID()
	live := object.DeepCopyObject().(client.Object)
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), live)
		return apierrors.IsNotFound(err) || err == nil && live.GetUID() != uid, client.IgnoreNotFound(err)
	})
	if err == nil {
		return nil
	}
	kind := kindOf(object, c.Scheme())
	text := fmt.Sprintf("%s %s is not gone: %s", kind, object.GetName(), err)
	if namespace, ok := live.(*corev1.Namespace); ok {
		for _, condition := range namespace.Status.Conditions {
			if condition.Status == corev1.ConditionTrue && condition.Message != "" {
				text += "; " + condition.Message
			}
		}
	}
	return fmt.Errorf("%s; `kubectl get %s %s -o yaml` shows what holds it", text, strings.ToLower(kind), object.GetName())
}

// empty deletes all objects of one of our kinds and removes our finalizers, because the controllers that would remove them no
// longer run. It returns the number of objects.
func empty(ctx context.Context, c client.Client, definition *apiextensionsv1.CustomResourceDefinition) (int, error) {
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if i < 0 {
		return 0, nil
	}
	var objects unstructured.UnstructuredList
	objects.SetGroupVersionKind(schema.GroupVersionKind{
		Group: definition.Spec.Group, Version: definition.Spec.Versions[i].Name,
		Kind: definition.Spec.Names.ListKind,
	})
	if err := c.List(ctx, &objects); err != nil && !Absent(err) {
		return 0, fmt.Errorf("list %s: %w", definition.Spec.Names.Plural, err)
	}
	for i := range objects.Items {
		object := &objects.Items[i]
		if err := erase(ctx, c, object); err != nil {
			return 0, err
		}
		if err := release(ctx, c, object); err != nil {
			return 0, err
		}
	}
	return len(objects.Items), nil
}

// releasePods removes our finalizer from pods of peers. The garbage collector deletes these pods with their ShadowPods.
func releasePods(ctx context.Context, c client.Client) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingLabels{labels.ManagedBy: labels.ManagedByShadowPod}); err != nil {
		return fmt.Errorf("list pods of peers: %w", err)
	}
	for i := range pods.Items {
		if err := release(ctx, c, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// release removes our finalizers from an object.
func release(ctx context.Context, c client.Client, object client.Object) error {
	before := object.DeepCopyObject().(client.Object)
	theirs := slices.DeleteFunc(object.GetFinalizers(), func(one string) bool { return slices.Contains(finalizers, one) })
	if len(theirs) == len(before.GetFinalizers()) {
		return nil
	}
	object.SetFinalizers(theirs)
	if err := c.Patch(ctx, object, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove our finalizers from %s %s: %w", kindOf(object, c.Scheme()), object.GetName(), err)
	}
	return nil
}

func ourDefinitions(ctx context.Context, c client.Reader) ([]apiextensionsv1.CustomResourceDefinition, error) {
	var all apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list resource definitions: %w", err)
	}
	return slices.DeleteFunc(all.Items, func(one apiextensionsv1.CustomResourceDefinition) bool {
		return !slices.Contains(groups, one.Spec.Group)
	}), nil
}

// clusterWide lists our objects outside our namespaces, except for resource definitions; webhooks come first, and the aggregated API, without which
// Kubernetes ends no deletion of a namespace.
func clusterWide(ctx context.Context, c client.Reader) (all []client.Object, err error) {
	ours := client.MatchingLabels{labels.AppPartOf: labels.PartOf}
	services := &unstructured.UnstructuredList{}
	services.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIServiceList"})
	for _, one := range []struct {
		list   client.ObjectList
		choice []client.ListOption
	}{
		{&admissionv1.MutatingWebhookConfigurationList{}, []client.ListOption{ours}},
		{&admissionv1.ValidatingWebhookConfigurationList{}, []client.ListOption{ours}},
		{services, []client.ListOption{ours}},
		{&admissionv1.ValidatingAdmissionPolicyBindingList{}, []client.ListOption{ours}},
		{&admissionv1.ValidatingAdmissionPolicyList{}, []client.ListOption{ours}},
		{&corev1.NodeList{}, []client.ListOption{client.MatchingLabels{labels.Type: labels.TypeVirtualNode}}},
		{&rbacv1.ClusterRoleBindingList{}, []client.ListOption{ours}},
		{&rbacv1.ClusterRoleList{}, []client.ListOption{ours}},
		{&rbacv1.RoleBindingList{}, []client.ListOption{ours, client.InNamespace(corev1.NamespaceNodeLease)}},
		{&rbacv1.RoleBindingList{}, []client.ListOption{ours, client.InNamespace(metav1.NamespaceSystem)}},
		{&storagev1.StorageClassList{}, []client.ListOption{ours}},
		{&flowcontrolv1.FlowSchemaList{}, []client.ListOption{ours}},
		{&flowcontrolv1.PriorityLevelConfigurationList{}, []client.ListOption{ours}},
	} {
		if err := c.List(ctx, one.list, one.choice...); err != nil {
			if Absent(err) {
				continue
			}
			return nil, fmt.Errorf("list leftovers: %w", err)
		}
		_ = meta.EachListItem(one.list, func(object runtime.Object) error {
			all = append(all, object.(client.Object))
			return nil
		})
	}
	return all, nil
}

// LeftOver returns an error that lists our objects in the whole cluster. Objects whose deletion is in progress get 10 seconds.
func LeftOver(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var left []string
	err := wait.PollUntilContextCancel(ctx, 10*interval, true, func(ctx context.Context) (bool, error) {
		all, err := clusterWide(ctx, c)
		left = left[:0]
		for _, object := range all {
			left = append(left, kindOf(object, c.Scheme())+" "+object.GetName())
		}
		return len(left) == 0, err
	})
	if len(left) > 0 {
		slices.Sort(left)
		return fmt.Errorf("after the uninstallation these objects are left; `liqoctl uninstall --purge` also removes them:\n- %s", strings.Join(left, "\n- "))
	}
	return err
}

func kindOf(object client.Object, scheme *runtime.Scheme) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	if kinds, _, err := scheme.ObjectKinds(object); err == nil && len(kinds) > 0 {
		return kinds[0].Kind
	}
	return fmt.Sprintf("%T", object)
}

// Absent reports whether the cluster does not know the kind.
func Absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
