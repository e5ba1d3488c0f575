// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/cache"

	"liqo.io/liqo/playground/components/kube/internal/cloud/loop"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

// nodes passes the pod prefixes of the real nodes to the fabric, and applies their labels.
func (c cluster) nodes() (func(context.Context), error) {
	if len(c.Nodes) == 0 {
		return nil, nil
	}
	informer := c.informers.Core().V1().Nodes()
	kick := loop.NewBell()
	handler, err := informer.Informer().AddEventHandler(c.onRealNode(kick.Ring))
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return func(ctx context.Context) {
		if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			return
		}
		kick.Ring()
		loop.Converge(ctx, kick, "nodes", func(ctx context.Context) error {
			all, err := informer.Lister().List(labels.Everything())
			if err != nil {
				return err
			}
			podCIDRs, problem := podCIDRsOf(c.Nodes, all)
			c.fabric.setPodCIDRs(podCIDRs)
			return errors.Join(problem, c.label(ctx, all))
		})
	}, nil
}

// onRealNode calls react at every event of a node that has a machine.
func (c cluster) onRealNode(react func()) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			_, ours := c.Nodes[key]
			return err == nil && ours
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { react() },
			UpdateFunc: func(any, any) { react() },
			DeleteFunc: func(any) { react() },
		},
	}
}

// podCIDRsOf returns the IPv4 pod prefix of each real node that has one. An invalid prefix is
// an error, and excludes only its own node from the result.
func podCIDRsOf(nodes map[string]settings.Node, all []*corev1.Node) (map[string]netip.Prefix, error) {
	podCIDRs, problems := map[string]netip.Prefix{}, []error(nil)
	for _, node := range all {
		if _, ours := nodes[node.Name]; !ours || node.Spec.PodCIDR == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(node.Spec.PodCIDR)
		if err != nil || !prefix.Addr().Is4() {
			problems = append(problems, fmt.Errorf("node %s: pod CIDR %q is not an IPv4 prefix", node.Name, node.Spec.PodCIDR))
			continue
		}
		podCIDRs[node.Name] = prefix.Masked()
	}
	return podCIDRs, errors.Join(problems...)
}

// label applies the configured labels to the real nodes that lack them.
func (c cluster) label(ctx context.Context, all []*corev1.Node) error {
	var problems []error
	for _, node := range all {
		if !lacks(node.Labels, c.Nodes[node.Name].Labels) {
			continue
		}
		// The UID keeps apply from creating a node that was deleted meanwhile.
		patch := corev1apply.Node(node.Name).WithUID(node.UID).WithLabels(c.Nodes[node.Name].Labels)
		if _, err := c.client.CoreV1().Nodes().Apply(ctx, patch, metav1.ApplyOptions{FieldManager: settings.FieldOwner, Force: true}); err != nil {
			problems = append(problems, fmt.Errorf("label node %s: %w", node.Name, err))
		}
	}
	return errors.Join(problems...)
}

// lacks reports whether a wanted label is missing or different.
func lacks(have, want map[string]string) bool {
	for key, value := range want {
		if actual, has := have[key]; !has || actual != value {
			return true
		}
	}
	return false
}
