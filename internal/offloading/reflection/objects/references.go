// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// references counts how many pods of this node, and Ingresses, refer to each ConfigMap and Secret. In namespaces that reflect only what is referenced, it
// decides what is copied.
type references struct {
	mu    sync.Mutex
	count map[reference]int
}

type reference struct {
	namespace string
	project.Reference
}

// replace counts the references of after instead of those of before, and returns those that appeared or disappeared. Both may be nil.
func (r *references) replace(before, after client.Object) (changed []reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[reference]int{}
	}
	was := map[reference]bool{}
	for _, one := range referencesOf(before) {
		was[one] = true
	}
	for _, one := range referencesOf(after) {
		if was[one] {
			delete(was, one)
			continue
		}
		if r.count[one]++; r.count[one] == 1 {
			changed = append(changed, one)
		}
	}
	for one := range was {
		if r.count[one]--; r.count[one] <= 0 {
			delete(r.count, one)
			changed = append(changed, one)
		}
	}
	return changed
}

func (r *references) has(one reference) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[one] > 0
}

func referencesOf(object client.Object) (all []reference) {
	var named []project.Reference
	switch object := object.(type) {
	case *corev1.Pod:
		named = project.References(object)
	case *networkingv1.Ingress:
		named = project.IngressReferences(object)
	}
	for _, one := range named {
		all = append(all, reference{object.GetNamespace(), one})
	}
	return all
}

// ReferrerChanged reconciles the ConfigMaps and Secrets for which a change of a pod or Ingress is the first or last reference.
func (o *Objects) ReferrerChanged(before, after client.Object) {
	for _, one := range o.references.replace(before, after) {
		if mapping, _ := o.engine.Namespaces.Local(one.namespace); mapping == nil || !mapping.ReferencedOnly() {
			continue
		}
		if r := o.Kind(one.Kind); r != nil {
			r.Queue.Add(types.NamespacedName{Namespace: one.namespace, Name: one.Name})
		}
	}
}

// withheld reports whether a ConfigMap or Secret stays in this cluster because nothing refers to it. The answer is known once pods and Ingresses are.
func (r *Reflector) withheld(namespace project.NamespaceMapping, object client.Object) (bool, error) {
	mapping, _ := r.engine.Namespaces.Local(namespace.Local)
	if mapping == nil || !mapping.ReferencedOnly() || object.GetAnnotations()[labels.Reflect] == "true" {
		return false, nil
	}
	if r.references.has(reference{namespace.Local, project.Reference{Kind: r.kind.name, Name: object.GetName()}}) {
		return false, nil
	}
	if r.options.PodsSynced != nil && !r.options.PodsSynced() {
		return false, engine.ErrNotSynced
	}
	if ingresses := r.Kind("Ingress"); ingresses != nil && !ingresses.Local.Synced(namespace.Local) {
		return false, engine.ErrNotSynced
	}
	return true, nil
}
