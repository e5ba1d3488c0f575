// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Part knows more about some kinds than their rows: what takes other objects, a memory or a clock to decide.
type Part interface {
	// Attach returns the hooks of these kinds. New calls it once.
	Attach(*Objects) []Hooks
	// PodChanged is called when a pod of the node has changed.
	PodChanged(before, after client.Object)
}

// Hooks are what a kind has besides its row. All functions may be nil.
type Hooks struct {
	*kinds.Kind
	// Trim drops what is not needed of local objects; nil: engine.TrimLocal.
	Trim func(client.Object)
	// Project returns the desired remote object; nil: there must be none. Without the hook, the row has the projection.
	Project func(project.NamespaceMapping, client.Object) (runtime.ApplyConfiguration, error)
	// Hold returns for how long an object whose copy exists must not be written yet.
	Hold func(project.NamespaceMapping, client.Object) time.Duration
	// Stale reports whether a whole copy has what the API server keeps of an earlier object of that name, so that no write makes it right.
	Stale func(intent runtime.ApplyConfiguration, there client.Object) bool
	// Elsewhere reports whether the copy of an object may name another remote namespace.
	Elsewhere func(client.Object) bool
	// Lacks returns what the copy of an object cannot do in the peer.
	Lacks func(client.Object) error

	// Changed is called when a local object has changed, Gone when a copy is gone, Removes before we delete one,
	// Stopped when a namespace is not offloaded any more.
	Changed func(before, after client.Object)
	Gone    func(mapping *engine.Mapping, copied client.Object)
	Removes func(mapping *engine.Mapping, copied client.Object)
	Stopped func(*engine.Mapping)
	// Recall is called before the copies of a namespace are compared for the first time, Compares with each copy of a local object.
	Recall   func(*engine.Mapping)
	Compares func(local types.NamespacedName, copied client.Object)

	// Lower is called when the peer refuses a copy, and reports whether Project returns another one now.
	Lower func(mapping *engine.Mapping, local client.Object, intent runtime.ApplyConfiguration, remote *metav1.PartialObjectMetadata, refusal error) bool
	// Written is called after a write. It returns why the copy is another one than the object asks for, and when to ask for that again.
	Written func(local client.Object, intent runtime.ApplyConfiguration) (time.Duration, error)
	// Outdated reports whether a copy must go, although no other can be written now. refused: the peer refuses the other one.
	Outdated func(mapping *engine.Mapping, local client.Object, remote *metav1.PartialObjectMetadata, refused bool) (bool, error)
	// Concerns reports whether a user has to learn that the peer takes no such object (Kind.Optional).
	Concerns func(project.NamespaceMapping, client.Object) bool
}

// copiedKinds are the rows of kinds that are copied. Pods have a package of their own, since they also bring their status back.
func copiedKinds() []*kinds.Kind {
	return kinds.Where(func(row *kinds.Kind) bool { return row.Workers > 0 })
}

// withHooks returns a row with the hooks for it.
func withHooks(row *kinds.Kind, all []Hooks) Hooks {
	if i := slices.IndexFunc(all, func(with Hooks) bool { return with.Kind == row }); i >= 0 {
		return all[i]
	}
	return Hooks{Kind: row}
}

// project returns the desired remote object; nil: there must be none.
func (r *Reflector) project(mapping project.NamespaceMapping, object client.Object) (runtime.ApplyConfiguration, error) {
	if r.kind.Project != nil {
		return r.kind.Project(mapping, object)
	}
	if r.kind.ByReference {
		if withheld, err := r.withheld(mapping, object); err != nil || withheld {
			return nil, err
		}
	}
	return r.kind.Copy(mapping, object), nil
}

// isStale reports whether no write makes a copy right.
func (r *Reflector) isStale(intent runtime.ApplyConfiguration, copied client.Object) bool {
	return r.kind.Stale != nil && r.kind.Stale(intent, copied)
}
