// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage/driver"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	liqoaction "liqo.io/liqo/internal/action"
)

// groups of our resource definitions.
var groups = []string{"discovery.liqo.io", "net.liqo.io", "offloading.liqo.io", "sharing.liqo.io", "virtualkubelet.liqo.io"}

// storageNamespace is marked with this label.
const storageLabel = "liqo.io/storage-provisioner"

// InUseError says what stands against an uninstallation.
type InUseError struct {
	// Outgoing and Incoming are the clusters with such a peering, Networks those with a tunnel, Namespaces are offloaded.
	Outgoing, Incoming, Networks, Namespaces []string
}

func (e *InUseError) Error() string {
	text := "Liqo is in use; before it is uninstalled, you should:"
	for _, group := range []struct {
		do    string
		names []string
	}{
		{"disable the outgoing peering with these clusters (`liqoctl unpeer out-of-band NAME`)", e.Outgoing},
		{"disable the incoming peering of these clusters (`liqoctl unpeer out-of-band NAME`, here or over there)", e.Incoming},
		{"disable the network with these clusters", e.Networks},
		{"disable the offloading of these namespaces (`liqoctl unoffload namespace NAME`)", e.Namespaces},
	} {
		if len(group.names) > 0 {
			text += "\n- " + group.do + ":\n    - " + strings.Join(group.names, "\n    - ")
		}
	}
	return text
}

// UninstallOptions say how much to remove.
type UninstallOptions struct {
	Namespace string
	// Purge also removes resource definitions and namespaces.
	Purge   bool
	Timeout time.Duration
}

// Uninstall removes Liqo, if nothing uses it, and looks that nothing is left.
func Uninstall(ctx context.Context, cluster Cluster, o UninstallOptions, progress liqoaction.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, err := cluster.client()
	if err != nil {
		return err
	}
	helm, err := cluster.helm(o.Namespace)
	if err != nil {
		return err
	}
	if _, err := Version(helm); err != nil && (!errors.Is(err, ErrNotInstalled) || !o.Purge) {
		return err
	}
	if err := inUse(ctx, c); err != nil {
		return err
	}
	progress.Start("Uninstalling")
	remove := action.NewUninstall(helm)
	remove.Timeout, remove.WaitStrategy, remove.IgnoreNotFound = o.Timeout, kube.StatusWatcherStrategy, true
	if _, err := remove.Run(Release); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return fmt.Errorf("uninstall: %w; the log of Job liqo-cleanup in namespace %s tells what its pre-delete hook saw", err, o.Namespace)
	}
	progress.Done("Liqo uninstalled")
	if o.Purge {
		progress.Start("Removing resource definitions and namespaces")
		if err := purge(ctx, c, o.Namespace); err != nil {
			return err
		}
		progress.Done("Resource definitions and namespaces removed")
	}
	return leftOver(ctx, c)
}

// inUse collects what would break.
func inUse(ctx context.Context, c client.Client) error {
	var peers discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &peers); err != nil && !absent(err) {
		return fmt.Errorf("list foreign clusters: %w", err)
	}
	found := &InUseError{}
	for i := range peers.Items {
		name := peers.Items[i].Name
		for _, condition := range peers.Items[i].Status.PeeringConditions {
			idle := condition.Status == discoveryv1alpha1.StatusNone || condition.Status == discoveryv1alpha1.StatusExternal
			switch {
			case idle:
			case condition.Type == discoveryv1alpha1.OutgoingPeering:
				found.Outgoing = append(found.Outgoing, name)
			case condition.Type == discoveryv1alpha1.IncomingPeering:
				found.Incoming = append(found.Incoming, name)
			case condition.Type == discoveryv1alpha1.NetworkStatus:
				found.Networks = append(found.Networks, name)
			}
		}
	}
	var offloaded metav1.PartialObjectMetadataList
	offloaded.SetGroupVersionKind(schema.GroupVersionKind{Group: "offloading.liqo.io", Version: "v1alpha1", Kind: "NamespaceOffloadingList"})
	if err := c.List(ctx, &offloaded); err != nil && !absent(err) {
		return fmt.Errorf("list offloaded namespaces: %w", err)
	}
	for i := range offloaded.Items {
		found.Namespaces = append(found.Namespaces, offloaded.Items[i].Namespace)
	}
	if len(found.Outgoing)+len(found.Incoming)+len(found.Networks)+len(found.Namespaces) > 0 {
		return found
	}
	return nil
}

// absent tells that the cluster does not know the kind.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// purge removes definitions, and with them all objects, and the namespaces; then it waits until they are gone.
func purge(ctx context.Context, c client.Client, namespace string) error {
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &definitions); err != nil {
		return fmt.Errorf("list resource definitions: %w", err)
	}
	var doomed []client.Object
	for i := range definitions.Items {
		if slices.Contains(groups, definitions.Items[i].Spec.Group) {
			doomed = append(doomed, &definitions.Items[i])
		}
	}
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		if ns.Name == namespace || ns.Labels[labels.TenantNamespace] == "true" || ns.Labels[storageLabel] == "true" {
			doomed = append(doomed, ns)
		}
	}
	for _, object := range doomed {
		if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", object.GetName(), err)
		}
	}
	for _, object := range doomed {
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("%s is not gone: %w; `kubectl get %s -o yaml` tells what holds it", object.GetName(), err, object.GetName())
		}
	}
	return nil
}

// leftOver looks for what belongs to us in the whole cluster.
func leftOver(ctx context.Context, c client.Client) error {
	var left []string
	for kind, list := range map[string]client.ObjectList{
		"ClusterRole": &rbacv1.ClusterRoleList{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBindingList{},
		"MutatingWebhookConfiguration": &admissionv1.MutatingWebhookConfigurationList{}, "ValidatingWebhookConfiguration": &admissionv1.ValidatingWebhookConfigurationList{},
	} {
		if err := c.List(ctx, list, client.MatchingLabels{labels.AppPartOf: labels.PartOf}); err != nil {
			return fmt.Errorf("look for what is left: %w", err)
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			if accessor, err := meta.Accessor(object); err == nil {
				left = append(left, kind+" "+accessor.GetName())
			}
			return nil
		})
	}
	if len(left) > 0 {
		slices.Sort(left)
		return fmt.Errorf("uninstalled, but these are left; delete them by hand:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}
