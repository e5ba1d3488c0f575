// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// references records what the pods of this node and the Ingresses refer to. In namespaces that reflect only what is referenced, it decides which ConfigMaps and
// Secrets are copied. It counts by referrer, because the Ingresses of a namespace are reported again when the namespace is offloaded again.
type references struct {
	mu    sync.Mutex
	by    map[referrer][]reference
	count map[reference]int
}

type referrer struct {
	kind string
	types.NamespacedName
}

type reference struct {
	namespace string
	podspec.Reference
}

// replace records what a referrer refers to now, each reference once, and returns the references that appeared or disappeared with that.
func (r *references) replace(entry referrer, after []reference) (changed []reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by, r.count = map[referrer][]reference{}, map[reference]int{}
	}
	before := r.by[entry]
	for _, to := range after {
		if slices.Contains(before, to) {
			continue
		}
		if r.count[to]++; r.count[to] == 1 {
			changed = append(changed, to)
		}
	}
	for _, to := range before {
		if slices.Contains(after, to) {
			continue
		}
		if r.count[to]--; r.count[to] == 0 {
			delete(r.count, to)
			changed = append(changed, to)
		}
	}
	if r.by[entry] = after; len(after) == 0 {
		delete(r.by, entry)
	}
	return changed
}

// forget drops what the referrers of a kind in a namespace refer to: they are not observed any more.
func (r *references) forget(kind, namespace string) {
	r.mu.Lock()
	of := slices.DeleteFunc(slices.Collect(maps.Keys(r.by)), func(entry referrer) bool { return entry.kind != kind || entry.Namespace != namespace })
	r.mu.Unlock()
	for _, entry := range of {
		r.replace(entry, nil)
	}
}

func (r *references) has(entry reference) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[entry] > 0
}

// referencesOf returns what an object refers to; nothing if its kind refers to nothing.
func referencesOf(object client.Object) (kind string, all []reference) {
	row := kinds.Of(object)
	if row == nil || row.References == nil {
		return "", nil
	}
	for _, named := range row.References(object) {
		all = append(all, reference{object.GetNamespace(), named})
	}
	return row.Name(), all
}

// referrerChanged reconciles the ConfigMaps and Secrets for which a change of a pod or Ingress is the first or last reference.
func (o *Objects) referrerChanged(before, after client.Object) {
	object := engine.Either(before, after)
	kind, now := referencesOf(object)
	if kind == "" {
		return
	}
	if after == nil {
		now = nil
	}
	for _, entry := range o.references.replace(referrer{kind, client.ObjectKeyFromObject(object)}, now) {
		if mapping, _ := o.engine.Namespaces.Local(entry.namespace); mapping == nil || !mapping.ReferencedOnly() {
			continue
		}
		if r := o.Kind(entry.Kind); r != nil {
			r.Queue.Add(types.NamespacedName{Namespace: entry.namespace, Name: entry.Name})
		}
	}
}

// withheld reports whether a ConfigMap or Secret stays in this cluster because nothing refers to it. The answer is known once pods and Ingresses are.
func (r *Reflector) withheld(namespace project.NamespaceMapping, object client.Object) (bool, error) {
	mapping, _ := r.engine.Namespaces.Local(namespace.Local)
	if mapping == nil || !mapping.ReferencedOnly() || object.GetAnnotations()[labels.Reflect] == "true" {
		return false, nil
	}
	if r.references.has(reference{namespace.Local, podspec.Reference{Kind: r.kind.Name(), Name: object.GetName()}}) {
		return false, nil
	}
	if r.options.PodsSynced != nil && !r.options.PodsSynced() {
		return false, engine.ErrNotSynced
	}
	for _, other := range r.reflectors {
		if other.kind.References != nil && !other.Local.Synced(namespace.Local) {
			return false, engine.ErrNotSynced
		}
	}
	return true, nil
}
