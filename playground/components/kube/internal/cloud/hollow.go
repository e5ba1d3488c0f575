// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"liqo.io/liqo/playground/components/kube/internal/cloud/loop"
	"liqo.io/liqo/playground/components/kube/internal/cloud/settings"
)

// hollowLabel is on each Node object made here; its value is the prefix of the group.
const hollowLabel = "playground.local/hollow"

// planHollow returns the desired Node objects by name. The simulator sets their conditions.
func planHollow(groups []settings.Hollow) map[string]*corev1.Node {
	nodes := map[string]*corev1.Node{}
	for _, group := range groups {
		capacity := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
		for name, quantity := range group.Capacity {
			capacity[corev1.ResourceName(name)] = resource.MustParse(quantity) // checked when it was read
		}
		for i := range group.Count {
			name := fmt.Sprintf("%s-%d", group.Prefix, i)
			own := map[string]string{
				"type": group.Kind, hollowLabel: group.Prefix, corev1.LabelHostname: name,
				corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}
			maps.Copy(own, group.Labels)
			nodes[name] = &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
				Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity.DeepCopy()},
			}
		}
	}
	return nodes
}

// diffHollow returns the nodes to create, and those made here that are no longer wanted.
func diffHollow(want map[string]*corev1.Node, have []*corev1.Node) (create, remove []*corev1.Node) {
	there := map[string]bool{}
	for _, node := range have {
		there[node.Name] = true
		if _, made := node.Labels[hollowLabel]; made && want[node.Name] == nil && node.DeletionTimestamp == nil {
			remove = append(remove, node)
		}
	}
	for name, node := range want {
		if !there[name] {
			create = append(create, node)
		}
	}
	return create, remove
}

// hollow creates the hollow nodes, and creates one again if a user deletes it.
func (c cluster) hollow() (func(context.Context), error) {
	informer := c.informers.Core().V1().Nodes()
	want, kick := planHollow(c.Hollow), loop.NewBell()
	interesting := func(object any) bool {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		return err == nil && want[key] != nil
	}
	handler, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(object any) {
			if interesting(object) {
				kick.Ring()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return func(ctx context.Context) {
		if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			return
		}
		kick.Ring()
		loop.Converge(ctx, kick, "hollow nodes", func(ctx context.Context) error {
			have, err := informer.Lister().List(labels.Everything())
			if err != nil {
				return err
			}
			create, remove := diffHollow(want, have)
			if len(create)+len(remove) == 0 {
				return nil
			}
			klog.FromContext(ctx).Info("hollow nodes change", "create", len(create), "remove", len(remove))
			return errors.Join(
				each(create, func(node *corev1.Node) error {
					_, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{FieldManager: settings.FieldOwner})
					if err != nil && !apierrors.IsAlreadyExists(err) {
						return fmt.Errorf("create node %s: %w", node.Name, err)
					}
					return nil
				}),
				each(remove, func(node *corev1.Node) error {
					err := c.client.CoreV1().Nodes().Delete(ctx, node.Name, *metav1.NewPreconditionDeleteOptions(string(node.UID)))
					if err != nil && !apierrors.IsNotFound(err) {
						return fmt.Errorf("delete node %s: %w", node.Name, err)
					}
					return nil
				}),
			)
		})
	}, nil
}

// each calls do for all nodes, with a bounded number of workers, and returns the first error.
func each(nodes []*corev1.Node, do func(*corev1.Node) error) error {
	const workers = 16
	queue, failed := make(chan *corev1.Node), make(chan error, 1)
	var group sync.WaitGroup
	for range min(workers, len(nodes)) {
		group.Go(func() {
			for node := range queue {
				if err := do(node); err != nil {
					select {
					case failed <- err:
					default: // the first error is enough
					}
				}
			}
		})
	}
	for _, node := range nodes {
		queue <- node
	}
	close(queue)
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
