// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
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

// referrerChanged reconciles the ConfigMaps and Secrets for which a change of a pod or Ingress is the first or last reference.
func (e *Engine) referrerChanged(before, after client.Object) {
	for _, one := range e.references.replace(before, after) {
		if mapping, _ := e.mappings.local(one.namespace); mapping == nil || !mapping.referencedOnly.Load() {
			continue
		}
		if r := e.reflector(one.Kind); r != nil {
			r.queue.add(types.NamespacedName{Namespace: one.namespace, Name: one.Name})
		}
	}
}

// withheld reports whether a ConfigMap or Secret stays in this cluster because nothing refers to it. The answer is known once pods and Ingresses are.
func (r *reflector) withheld(namespace project.NamespaceMapping, object client.Object) (bool, error) {
	mapping, _ := r.engine.mappings.local(namespace.Local)
	if mapping == nil || !mapping.referencedOnly.Load() || object.GetAnnotations()[labels.Reflect] == "true" {
		return false, nil
	}
	if r.engine.references.has(reference{namespace.Local, project.Reference{Kind: r.kind.name, Name: object.GetName()}}) {
		return false, nil
	}
	if pods := r.engine.pods; pods != nil && !pods.local.Synced(fanin.Every) {
		return false, errNotSynced
	}
	if ingresses := r.engine.reflector("Ingress"); ingresses != nil && !ingresses.local.Synced(namespace.Local) {
		return false, errNotSynced
	}
	return true, nil
}

// reflectionChanged reconciles what another choice of what is reflected affects.
func (e *Engine) reflectionChanged(mapping *mapping) {
	for _, kind := range []string{"ConfigMap", "Secret"} {
		r := e.reflector(kind)
		if r == nil {
			continue
		}
		for _, object := range r.local.All(mapping.Local) {
			r.queue.add(client.ObjectKeyFromObject(object))
		}
	}
}
