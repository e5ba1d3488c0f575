// SPDX-License-Identifier: Apache-2.0

package purge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubelabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
)

// ourNamespaces are those of peers and volumes, and the one of Liqo unless it holds objects of others. A name alone, which may be misspelt, makes no
// namespace ours.
func ourNamespaces(ctx context.Context, c client.Reader, namespace string, installed bool, progress action.Progress) (ours []client.Object, err error) {
	var all corev1.NamespaceList
	if err := c.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		switch {
		case slices.Contains(protected, one.Name):
			if one.Name == namespace {
				progress.Warn(fmt.Sprintf("Namespace %s stays: it belongs to the cluster", one.Name))
				if ours, err = inside(ctx, c, namespace, ours); err != nil {
					return nil, err
				}
			}
		case one.Labels[labels.TenantNamespace] == "true":
			ours = append(ours, one)
		case one.Labels[labels.StorageProvisioner] == "true":
			free, err := holdsNothing(ctx, c, one.Name, progress)
			if err != nil {
				return nil, err
			}
			if free {
				ours = append(ours, one)
			} else if ours, err = inside(ctx, c, one.Name, ours); err != nil {
				return nil, err
			}
		case one.Name == namespace:
			objects, err := inside(ctx, c, namespace, nil)
			if err != nil {
				return nil, err
			}
			labelled := one.Labels[labels.AppPartOf] == labels.PartOf
			if !labelled && !installed && len(objects) == 0 {
				progress.Warn(fmt.Sprintf("Namespace %s stays: nothing in it shows that Liqo was installed there", one.Name))
				continue
			}
			others, err := unmanaged(ctx, c, namespace, labelled)
			if err != nil {
				return nil, err
			}
			if len(others) > 0 {
				progress.Warn(fmt.Sprintf("Namespace %s stays: it holds objects that are not Liqo's: %s", one.Name, strings.Join(others, ", ")))
				ours = append(ours, objects...)
				continue
			}
			ours = append(ours, one)
		}
	}
	return ours, nil
}

// Storage deletes the namespaces of real claims that hold none, and names the claims of users whose data is in the others.
func Storage(ctx context.Context, c client.Client, progress action.Progress) error {
	var all corev1.NamespaceList
	if err := c.List(ctx, &all, client.MatchingLabels{labels.StorageProvisioner: "true"}); err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		free, err := holdsNothing(ctx, c, one.Name, progress)
		if err != nil {
			return err
		}
		if !free {
			continue
		}
		if err := erase(ctx, c, one); err != nil {
			return err
		}
		if err := gone(ctx, c, one); err != nil {
			return err
		}
	}
	return nil
}

// holdsNothing reports whether a storage namespace holds no data.
func holdsNothing(ctx context.Context, c client.Reader, namespace string, progress action.Progress) (bool, error) {
	var all corev1.PersistentVolumeClaimList
	if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("list claims in namespace %s: %w", namespace, err)
	}
	var users []string
	for i := range all.Items {
		one := &all.Items[i]
		users = append(users, fmt.Sprintf("%s/%s", one.Labels[labels.VirtualClaimNamespace],
			cmp.Or(one.Labels[labels.VirtualClaimName], one.Annotations[labels.VirtualClaimName], one.Name)))
	}
	if len(users) > 0 {
		slices.Sort(users)
		progress.Warn(fmt.Sprintf("Namespace %s stays: it holds the data of the claims %s", namespace, strings.Join(users, ", ")))
	}
	return len(users) == 0, nil
}

// inside adds our objects in a namespace that stays: those that our processes created, and those of a chart whose release
// record is lost.
func inside(ctx context.Context, c client.Reader, namespace string, ours []client.Object) ([]client.Object, error) {
	lists := []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.IngressList{},
		&corev1.ServiceList{},
		&rbacv1.RoleBindingList{}, &rbacv1.RoleList{}, &corev1.ServiceAccountList{}, &corev1.SecretList{}, &corev1.ConfigMapList{},
	}
	for _, kind := range []string{"ServiceMonitorList", "PodMonitorList"} {
		monitors := &unstructured.UnstructuredList{}
		monitors.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: kind})
		lists = append(lists, monitors)
	}
	for _, list := range lists {
		err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{labels.AppPartOf: labels.PartOf})
		if err != nil && !Absent(err) {
			return nil, fmt.Errorf("list leftovers in namespace %s: %w", namespace, err)
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			ours = append(ours, object.(client.Object))
			return nil
		})
	}
	return ours, nil
}

// unmanaged lists the objects in a namespace that are not ours: only workloads and volumes if the label of the namespace marks it as ours, since what else
// is in it was put there for Liqo. Objects that Kubernetes and Helm create in each namespace do not count.
func unmanaged(ctx context.Context, c client.Reader, namespace string, labelled bool) (found []string, err error) {
	notOurs, err := kubelabels.Parse(labels.AppPartOf + "!=" + labels.PartOf)
	if err != nil {
		return nil, err
	}
	kinds := map[string]client.ObjectList{
		"Deployment": &appsv1.DeploymentList{}, "StatefulSet": &appsv1.StatefulSetList{}, "DaemonSet": &appsv1.DaemonSetList{},
		"Pod": &corev1.PodList{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaimList{},
	}
	if !labelled {
		maps.Copy(kinds, map[string]client.ObjectList{
			"CronJob": &batchv1.CronJobList{}, "Job": &batchv1.JobList{}, "Service": &corev1.ServiceList{}, "Ingress": &networkingv1.IngressList{},
			"Secret": &corev1.SecretList{}, "ConfigMap": &corev1.ConfigMapList{}, "ServiceAccount": &corev1.ServiceAccountList{}, "Role": &rbacv1.RoleList{},
		})
	}
	for kind, list := range kinds {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: notOurs}); err != nil {
			return nil, fmt.Errorf("list objects in namespace %s: %w", namespace, err)
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			if one := object.(client.Object); !ofEachNamespace(one) {
				found = append(found, kind+" "+one.GetName())
			}
			return nil
		})
	}
	slices.Sort(found)
	return found, nil
}

// ofEachNamespace reports whether Kubernetes or Helm created an object: the account default with its token, the authorities, the record of our release.
func ofEachNamespace(object client.Object) bool {
	switch one := object.(type) {
	case *corev1.ServiceAccount:
		return one.Name == "default"
	case *corev1.ConfigMap:
		return one.Name == "kube-root-ca.crt" || one.Name == "openshift-service-ca.crt" || helmRecord(one)
	case *corev1.Secret:
		return one.Type == corev1.SecretTypeServiceAccountToken && one.Annotations[corev1.ServiceAccountNameKey] == "default" || helmRecord(one)
	}
	return false
}

// helmRecord reports whether an object records a release of Liqo.
func helmRecord(object client.Object) bool {
	return object.GetLabels()["owner"] == "helm" && object.GetLabels()["name"] == "liqo"
}
