// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/provider"
	"liqo.io/liqo/internal/kube/podphase"
)

// read collects the facts about the cluster. It changes nothing.
func read(ctx context.Context, c client.Reader, host string) (provider.Facts, error) {
	f := provider.Facts{APIServer: host}
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
	if err := readConfigured(ctx, c, &f); err != nil {
		return f, err
	}
	return f, readUsed(ctx, c, &f, virtual)
}

// readConfigured reads the networks from kubeadm's record, and those it lacks from the controller manager's arguments.
func readConfigured(ctx context.Context, c client.Reader, f *provider.Facts) error {
	var cluster struct {
		Networking struct {
			PodSubnet     string `json:"podSubnet"`
			ServiceSubnet string `json:"serviceSubnet"`
		} `json:"networking"`
	}
	var kubelet struct {
		ServerTLSBootstrap bool `json:"serverTLSBootstrap"`
	}
	var err, errKubelet error
	f.Kubeadm, err = readRecord(ctx, c, "kubeadm-config", "ClusterConfiguration", &cluster)
	_, errKubelet = readRecord(ctx, c, "kubelet-config", "kubelet", &kubelet)
	if err := errors.Join(err, errKubelet); err != nil {
		return fmt.Errorf("read kubeadm's ConfigMaps: %w", err)
	}
	f.ConfiguredPods, f.ConfiguredServices = cluster.Networking.PodSubnet, cluster.Networking.ServiceSubnet
	f.ServerTLSBootstrap = kubelet.ServerTLSBootstrap
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace("kube-system"), client.MatchingLabels{"component": "kube-controller-manager"}); err != nil {
		return fmt.Errorf("list the controller manager's pods: %w", err)
	}
	f.ControllerManager = len(pods.Items) > 0
	for i := range pods.Items {
		for _, container := range pods.Items[i].Spec.Containers {
			for _, argument := range slices.Concat(container.Command, container.Args) {
				if value, ok := strings.CutPrefix(argument, "--cluster-cidr="); ok && f.ConfiguredPods == "" {
					f.ConfiguredPods = value
				}
				if value, ok := strings.CutPrefix(argument, "--service-cluster-ip-range="); ok && f.ConfiguredServices == "" {
					f.ConfiguredServices = value
				}
			}
		}
	}
	return nil
}

// readRecord decodes a key of a ConfigMap of kubeadm. It reports whether the ConfigMap exists; a value that is not YAML is ignored.
func readRecord(ctx context.Context, c client.Reader, name, key string, into any) (bool, error) {
	var record corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, &record); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	_ = yaml.Unmarshal([]byte(record.Data[key]), into)
	return true, nil
}

// readUsed lists the addresses in use: those of services, and of local running pods outside the host network.
func readUsed(ctx context.Context, c client.Reader, f *provider.Facts, virtual map[string]bool) error {
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.HostNetwork || pod.Status.PodIP == "" || virtual[pod.Spec.NodeName] || podphase.Final(pod.Status.Phase) {
			continue
		}
		f.Pods = append(f.Pods, provider.Address{Name: pod.Namespace + "/" + pod.Name, IP: pod.Status.PodIP})
	}
	var services corev1.ServiceList
	if err := c.List(ctx, &services); err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	for i := range services.Items {
		if ip := services.Items[i].Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
			f.Services = append(f.Services, provider.Address{Name: services.Items[i].Namespace + "/" + services.Items[i].Name, IP: ip})
		}
	}
	return nil
}
