// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/inuse"
	"liqo.io/liqo/internal/action/purge"
)

type UninstallOptions struct {
	Namespace string
	// Purge also removes resource definitions and namespaces.
	Purge   bool
	Timeout time.Duration
}

// Uninstall removes Liqo if nothing uses it, and verifies that no object is left. What is ending already is waited for.
func Uninstall(ctx context.Context, cluster Cluster, o UninstallOptions, progress liqoaction.Progress) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	c, err := cluster.client()
	if err != nil {
		return unreachable(cluster, err)
	}
	helm, err := cluster.helm(o.Namespace)
	if err != nil {
		return err
	}
	last, err := lastRelease(helm)
	if err != nil {
		return err
	}
	if last == nil {
		if err := notInstalled(ctx, cluster, o.Namespace); !o.Purge || !errors.Is(err, ErrNotInstalled) {
			return err
		}
	}
	if last == nil { // no controller ends anything
		err = inuse.Check(ctx, c)
	} else {
		err = inuse.Await(ctx, c, progress)
	}
	if err != nil {
		return err
	}
	if last != nil {
		progress.Start("Uninstalling Liqo " + last.Chart.Metadata.AppVersion)
		if err := remove(ctx, c, helm, o); err != nil {
			return err
		}
		progress.Done("Liqo uninstalled")
		if !o.Purge {
			if err := purge.Storage(ctx, c, progress); err != nil {
				return err
			}
		}
	}
	if o.Purge {
		progress.Start("Removing resource definitions and namespaces")
		removed, err := purge.Purge(ctx, c, o.Namespace, last != nil, progress)
		if err != nil {
			return err
		}
		if last == nil && removed == 0 {
			return ErrNotInstalled
		}
		progress.Done("Resource definitions and namespaces removed")
	}
	return purge.LeftOver(ctx, c)
}

// remove uninstalls the release with Helm and waits until its pods have ended, because until then they may write.
func remove(ctx context.Context, c client.WithWatch, helm *action.Configuration, o UninstallOptions) error {
	inner, ok := helm.KubeClient.(*kube.Client)
	if !ok {
		return fmt.Errorf("unknown type of Helm client: %T", helm.KubeClient)
	}
	helm.KubeClient = &waitingClient{inner, waiter{ctx: ctx, client: c, namespace: o.Namespace}}
	peered, err := anyPeer(ctx, c)
	if err != nil {
		return err
	}
	run := action.NewUninstall(helm)
	run.Timeout, run.WaitStrategy, run.IgnoreNotFound = o.Timeout, kube.StatusWatcherStrategy, true
	// The hook ends peerings. Without peerings it would need an image and a node for nothing.
	run.DisableHooks = !peered
	if _, err := run.Run(Release); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		text := observe(context.WithoutCancel(ctx), c, o.Namespace).hints(o.Namespace)
		if ctx.Err() != nil && peered {
			text += "\nthe authentication service may be stopped by now: run `liqoctl uninstall` again, or `liqoctl install` to keep Liqo"
		}
		return fmt.Errorf("uninstall: %w; see the log of the job that ends peerings: kubectl logs -n %s job/liqo-cleanup%s", err, o.Namespace, text)
	}
	err = await.Follow(ctx, c, &corev1.PodList{}, func(pods []corev1.Pod) (bool, error) { return len(pods) == 0, nil },
		client.InNamespace(o.Namespace), client.MatchingLabels{labels.AppPartOf: labels.PartOf})
	if err != nil {
		return fmt.Errorf("wait until the pods in namespace %s have ended: %w", o.Namespace, err)
	}
	return nil
}

// anyPeer reports whether the cluster has an object of any peer.
func anyPeer(ctx context.Context, c client.Reader) (bool, error) {
	var peers discoveryv1alpha1.ForeignClusterList
	if err := c.List(ctx, &peers, client.Limit(1)); err != nil && !purge.Absent(err) {
		return false, fmt.Errorf("list foreign clusters: %w", err)
	}
	var tenants corev1.NamespaceList
	if err := c.List(ctx, &tenants, client.MatchingLabels{labels.TenantNamespace: "true"}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("list tenant namespaces: %w", err)
	}
	return len(peers.Items)+len(tenants.Items) > 0, nil
}
