// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// ErrNotInstalled says that there is no Liqo in the cluster.
var ErrNotInstalled = errors.New("Liqo is not installed in this cluster; see `liqoctl install --help`")

// installed finds installations by the ConfigMap that each has: namespace, and release that made it.
func installed(ctx context.Context, c client.Client) (map[string]string, error) {
	var all corev1.ConfigMapList
	if err := c.List(ctx, &all, client.MatchingLabels{labels.AppName: "clusterid-configmap"}); err != nil {
		return nil, fmt.Errorf("look for installations: %w", err)
	}
	found := map[string]string{}
	for i := range all.Items {
		found[all.Items[i].Namespace] = all.Items[i].Annotations["meta.helm.sh/release-name"]
	}
	return found, nil
}

// Version is the version that is installed.
func Version(helm *action.Configuration) (string, error) {
	found, err := action.NewGet(helm).Run(Release)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return "", ErrNotInstalled
	}
	if err != nil {
		return "", fmt.Errorf("read release %s: %w", Release, err)
	}
	known, ok := found.(*release.Release)
	if !ok || known.Chart == nil || known.Chart.Metadata == nil {
		return "", fmt.Errorf("release %s holds no chart that this program understands", Release)
	}
	return known.Chart.Metadata.AppVersion, nil
}

// InstalledVersion is the version that is installed in a namespace.
func InstalledVersion(cluster Cluster, namespace string) (string, error) {
	helm, err := cluster.helm(namespace)
	if err != nil {
		return "", err
	}
	return Version(helm)
}

// checkVersion refuses to go back: an older version may not understand what a newer one wrote.
func checkVersion(have, want string) error {
	old, errOld := version.ParseSemantic(have)
	now, errNew := version.ParseSemantic(want)
	if errOld != nil || errNew != nil || !now.LessThan(old) {
		return nil // versions that are none, of builds from source, are the user's business
	}
	return fmt.Errorf("version %s is installed, and this is %s, which is older; use a liqoctl of version %s or later", have, want, have)
}

// hints say what an installation that did not finish waits for.
func (p *Prepared) hints() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var seen []string
	var pods corev1.PodList
	if err := p.client.List(ctx, &pods, client.InNamespace(p.options.Namespace)); err == nil {
		for i := range pods.Items {
			for _, status := range pods.Items[i].Status.ContainerStatuses {
				if waiting := status.State.Waiting; waiting != nil {
					seen = append(seen, fmt.Sprintf("pod %s waits: %s %s", pods.Items[i].Name, waiting.Reason, waiting.Message))
				}
			}
			for _, condition := range pods.Items[i].Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
					seen = append(seen, fmt.Sprintf("pod %s has no node: %s", pods.Items[i].Name, condition.Message))
				}
			}
		}
	}
	var services corev1.ServiceList
	if err := p.client.List(ctx, &services, client.InNamespace(p.options.Namespace)); err == nil {
		for i := range services.Items {
			if services.Items[i].Spec.Type == corev1.ServiceTypeLoadBalancer && len(services.Items[i].Status.LoadBalancer.Ingress) == 0 {
				seen = append(seen, fmt.Sprintf("Service %s has no address from a load balancer; without one, use --service-type NodePort", services.Items[i].Name))
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	return "\nseen in namespace " + p.options.Namespace + ":\n  " + strings.Join(seen, "\n  ") + "\nmore time is given by --timeout"
}
