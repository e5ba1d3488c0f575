// SPDX-License-Identifier: Apache-2.0

package services

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
)

// gated records the labels of the pods of this node that have readiness gates. Their gates are in this cluster: the peer takes such a pod for ready as soon as
// its containers are, so that Services there must not find it by a selector.
type gated struct {
	mu   sync.RWMutex
	pods map[string]map[string]klabels.Set // by namespace and name
}

func (g *gated) replace(pod types.NamespacedName, labels klabels.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pods == nil {
		g.pods = map[string]map[string]klabels.Set{}
	}
	of := g.pods[pod.Namespace]
	if labels == nil {
		if delete(of, pod.Name); len(of) == 0 {
			delete(g.pods, pod.Namespace)
		}
		return
	}
	if of == nil {
		of = map[string]klabels.Set{}
		g.pods[pod.Namespace] = of
	}
	of[pod.Name] = labels
}

// selects reports whether a selector finds a pod with readiness gates.
func (g *gated) selects(namespace string, selector map[string]string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, labels := range g.pods[namespace] {
		if klabels.SelectorFromSet(selector).Matches(labels) {
			return true
		}
	}
	return false
}

// gatedLabels returns the labels of a pod with readiness gates that has not ended; nil for other objects.
func gatedLabels(object client.Object) klabels.Set {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod == nil || len(pod.Spec.ReadinessGates) == 0 || podphase.Final(pod.Status.Phase) {
		return nil
	}
	return pod.Labels
}

// podGated looks at the Services of a pod of this node with readiness gates that comes, goes or gets other labels, and at their slices.
func (s *Services) podGated(before, after client.Object) {
	was, is := gatedLabels(before), gatedLabels(after)
	if maps.Equal(was, is) {
		return // so it is for pods without gates
	}
	pod := client.ObjectKeyFromObject(engine.Either(before, after))
	s.gated.replace(pod, is)
	services := s.services()
	if services == nil {
		return
	}
	for _, object := range services.Local.All(pod.Namespace) {
		service, ok := object.(*corev1.Service)
		if !ok || len(service.Spec.Selector) == 0 {
			continue
		}
		if selector := klabels.SelectorFromSet(service.Spec.Selector); !selector.Matches(was) && !selector.Matches(is) {
			continue
		}
		services.Queue.Add(client.ObjectKeyFromObject(service))
		s.enqueueSlices(service)
	}
}

// served returns a Service as the peer is to have it: with another selector if this cluster names its endpoints there.
func (s *Services) served(local *corev1.Service) (*corev1.Service, error) {
	switch {
	case local.Spec.Type == corev1.ServiceTypeExternalName || s.slices() == nil: // it has no endpoints there, or the peer finds them alone
		return local, nil
	case len(local.Spec.Selector) == 0:
		return kinds.ByName(local), nil
	case s.options.PodsSynced == nil:
		return local, nil // no pod runs there
	case !s.options.PodsSynced():
		return nil, engine.ErrNotSynced
	case s.gated.selects(local.Namespace, local.Spec.Selector):
		return kinds.ByName(local), nil
	}
	return local, nil
}

// onlyGated reports whether a Service selects pods of this node, and each has readiness gates: then the peer has found none that must stay until it is named.
func (s *Services) onlyGated(local *corev1.Service) bool {
	if s.options.NodePods == nil || len(local.Spec.Selector) == 0 || !s.gated.selects(local.Namespace, local.Spec.Selector) {
		return false
	}
	selector := klabels.SelectorFromSet(local.Spec.Selector)
	return !slices.ContainsFunc(s.options.NodePods(local.Namespace), func(pod *corev1.Pod) bool {
		return len(pod.Spec.ReadinessGates) == 0 && selector.Matches(klabels.Set(pod.Labels))
	})
}
