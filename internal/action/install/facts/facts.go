// SPDX-License-Identifier: Apache-2.0

// Package facts reads what package clusters decides from. It decides nothing, and changes nothing. Its proof are facts_test.go
// and the recorded clusters of package clusters.
package facts

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/install/clusters"
	"liqo.io/liqo/internal/kube/podphase"
)

// Read collects the facts about the cluster whose API server is at host.
func Read(ctx context.Context, c client.Reader, host string) (clusters.Facts, error) {
	f := clusters.Facts{APIServer: host}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return f, fmt.Errorf("list nodes: %w", err)
	}
	virtual := map[string]bool{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if node.Labels[labels.Type] == labels.TypeVirtualNode {
			virtual[node.Name] = true
			continue
		}
		f.NodeCIDRs = append(f.NodeCIDRs, node.Spec.PodCIDRs...)
		f.NodesWithoutCIDR = f.NodesWithoutCIDR || len(node.Spec.PodCIDRs) == 0
		f.Kubelets = append(f.Kubelets, node.Status.NodeInfo.KubeletVersion)
		f.ProviderIDs = append(f.ProviderIDs, node.Spec.ProviderID)
	}
	var cidrs networkingv1.ServiceCIDRList
	if err := c.List(ctx, &cidrs); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return f, fmt.Errorf("list service CIDRs: %w", err)
	}
	for i := range cidrs.Items {
		f.ServiceCIDRs = append(f.ServiceCIDRs, cidrs.Items[i].Spec.CIDRs...)
	}
	if err := readControllerManager(ctx, c, &f); err != nil {
		return f, err
	}
	if err := readObjects(ctx, c, &f); err != nil {
		return f, err
	}
	return f, readUsed(ctx, c, &f, virtual)
}

func readControllerManager(ctx context.Context, c client.Reader, f *clusters.Facts) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace("kube-system"), client.MatchingLabels{"component": "kube-controller-manager"}); err != nil {
		return fmt.Errorf("list the controller manager's pods: %w", err)
	}
	for i := range pods.Items {
		f.ControllerManager = append(f.ControllerManager, pods.Items[i].Name)
		for _, container := range pods.Items[i].Spec.Containers {
			f.ControllerManager = slices.Concat(f.ControllerManager, container.Command, container.Args)
		}
	}
	return nil
}

// readObjects reads what the types of clusters ask for. A cluster of another type need not have it.
func readObjects(ctx context.Context, c client.Reader, f *clusters.Facts) error {
	f.Objects = map[clusters.Object]map[string]any{}
	for _, row := range clusters.All {
		for _, id := range row.Reads {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion(id.APIVersion)
			object.SetKind(id.Kind)
			err := c.Get(ctx, client.ObjectKey{Namespace: id.Namespace, Name: id.Name}, object)
			switch {
			case err == nil:
				f.Objects[id] = object.Object
			case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
				return fmt.Errorf("read %s %s/%s: %w", id.Kind, id.Namespace, id.Name, err)
			}
		}
	}
	return nil
}

// readUsed lists the addresses in use: those of services, and of local running pods outside the host network.
func readUsed(ctx context.Context, c client.Reader, f *clusters.Facts, virtual map[string]bool) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.HostNetwork || pod.Status.PodIP == "" || virtual[pod.Spec.NodeName] || podphase.Final(pod.Status.Phase) {
			continue
		}
		f.Pods = append(f.Pods, clusters.Address{Name: pod.Namespace + "/" + pod.Name, IP: pod.Status.PodIP})
	}
	var services corev1.ServiceList
	if err := c.List(ctx, &services); err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	for i := range services.Items {
		if ip := services.Items[i].Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
			f.Services = append(f.Services, clusters.Address{Name: services.Items[i].Namespace + "/" + services.Items[i].Name, IP: ip})
		}
	}
	return nil
}
