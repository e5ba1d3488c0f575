// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"cmp"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// Kind is a row: a kind whose objects, or others in their place, are at a peer.
type Kind struct {
	// Local is the kind in the cluster of the user, Remote what its peer has for an object of it.
	Local, Remote Resource
	// Register adds the types of both to a scheme.
	Register []func(*runtime.Scheme) error
	// Order is the place in lists that people read. Rows of the same order are sorted by name.
	Order int

	// Flag is the part of --FLAG-reflection-workers, Workers its default. Empty: the kind has a loop of its own.
	Flag    string
	Workers int

	// Copy returns what the peer has of a local object that is not skipped; nil: nothing. If the field is nil, the copy also
	// follows from other objects: see the hooks of package objects.
	Copy func(project.NamespaceMapping, runtime.Object) runtime.ApplyConfiguration
	// Lost returns, as the error to report, what a user asked for in an object and its copy does not have, whatever the peer accepts; nil: nothing.
	Lost func(runtime.Object) error
	// Optional: a peer may grant no rights on the kind, or take them back. Then its users learn it, and nothing stays there that is not corrected any more.
	Optional *Optional
	// RemoteName and LocalName convert between the names of the two objects; nil if they are equal.
	RemoteName, LocalName func(project.NamespaceMapping, string) string
	// ByReference: in namespaces that reflect only what is referenced, an object is copied if something refers to it.
	ByReference bool
	// References returns the ConfigMaps and Secrets that a local object refers to, each once; nil: the kind refers to none.
	References func(runtime.Object) []podspec.Reference
	// NeedsIPs: the kind is reflected only if addresses are.
	NeedsIPs bool
	// Exposes: the metadata of the kind decides how others reach the application, so every user learns what a copy lacks.
	Exposes bool

	// Events: warnings about the remote object are copied to the local one.
	Events bool
	// Counted: the remote objects count against what a peer may have.
	Counted bool
	// Content: what the deletion of a remote namespace would lose has objects of the kind Local there.
	Content bool
	// Data: the objects hold data, so that they stay in a remote namespace that is kept for it.
	Data bool

	// Rights are those of a peer on its remote objects.
	Rights Rights
	// Metadata is which labels and annotations a peer may write; nil: Guard, or a webhook, judges that.
	Metadata *Metadata
	// Guard is a policy for what a peer writes of the kind; nil: it is judged with all kinds, or by a policy of the chart.
	Guard *Guard
	// Judged: a policy of its own in the chart judges what a peer writes.
	Judged bool
	// Total is how many remote objects a peer may have by default, Most how many a namespace where nothing counts them over all of a peer.
	Total, Most string

	// Custom: its objects have no Go type. Users add the kind, so that All does not return it.
	Custom bool
}

// Optional is what users read about a kind that a peer does not take.
type Optional struct {
	// None: it takes no object of the kind. Refused: it does not take this one, which may be for the reason Hint, and Means what Means states.
	None, Refused, Hint, Means string
}

// Refusal returns what users read if the peer refuses an object. forbidden: it may not write it.
func (o *Optional) Refusal(forbidden bool) string {
	if forbidden {
		return o.Refused + " (" + o.Hint + "), " + o.Means
	}
	return o.Refused + ", " + o.Means
}

// copied adapts the projection of a type. Objects that are skipped have no copy.
func copied[T metav1.Object, A any, P interface {
	*A
	runtime.ApplyConfiguration
}](of func(project.NamespaceMapping, T) P) func(project.NamespaceMapping, runtime.Object) runtime.ApplyConfiguration {
	return func(m project.NamespaceMapping, object runtime.Object) runtime.ApplyConfiguration {
		local, ok := object.(T)
		if !ok || m.Skips(local) {
			return nil
		}
		if intent := of(m, local); intent != nil {
			return intent
		}
		return nil
	}
}

// referring adapts the references of a type.
func referring[T runtime.Object](of func(T) []podspec.Reference) func(runtime.Object) []podspec.Reference {
	return func(object runtime.Object) []podspec.Reference {
		if local, ok := object.(T); ok {
			return of(local)
		}
		return nil
	}
}

// Of returns the row of a local object; nil if there is none.
func Of(object runtime.Object) *Kind {
	all, _, err := types().ObjectKinds(object)
	if err != nil {
		return nil
	}
	for _, kind := range All() {
		if slices.Contains(all, kind.Local.GroupVersionKind) {
			return kind
		}
	}
	return nil
}

// CustomResource returns the row of a kind that users add.
func CustomResource(of schema.GroupVersionKind) *Kind {
	resource := Resource{GroupVersionKind: of}
	return &Kind{Local: resource, Remote: resource, Custom: true, Exposes: true}
}

// Name returns the name of the kind in metrics and events.
func (k *Kind) Name() string {
	if k.Custom {
		return k.Local.Kind + "." + k.Local.Group
	}
	return k.Local.Kind
}

// Resource is a kind of an API.
type Resource struct {
	schema.GroupVersionKind
	// Plural is its name in paths.
	Plural string
}

// List returns the kind of its lists.
func (r Resource) List() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind + "List") }

// types has the types of all rows.
var types = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		panic(err) // two types of one name: TestRows
	}
	return scheme
})

// Empty returns an object to read into: one without a Go type if the kind has none.
func (r Resource) Empty() runtime.Object {
	if object, err := types().New(r.GroupVersionKind); err == nil {
		return object
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(r.GroupVersionKind)
	return object
}

// EmptyList returns a list to read into.
func (r Resource) EmptyList() runtime.Object {
	if list, err := types().New(r.List()); err == nil {
		return list
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.List())
	return list
}

// GroupResource returns the resource without its version.
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// GroupVersionResource returns the resource with its version.
func (r Resource) GroupVersionResource() schema.GroupVersionResource {
	return r.GroupVersion().WithResource(r.Plural)
}

// defaultWorkers suffice for kinds that change with their application.
const defaultWorkers = 3

var rows []*Kind

// row adds a row. Each file calls it once.
func row(kind Kind) *Kind {
	rows = append(rows, &kind)
	return &kind
}

// All returns the rows in their order. The caller must not change them.
var All = sync.OnceValue(func() []*Kind {
	return slices.SortedFunc(slices.Values(rows), func(a, b *Kind) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Local.Kind, b.Local.Kind))
	})
})

// Where returns the rows for which is returns true, in their order.
func Where(is func(*Kind) bool) (some []*Kind) {
	for _, kind := range All() {
		if is(kind) {
			some = append(some, kind)
		}
	}
	return some
}

// AddToScheme adds the types of all rows.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, kind := range rows {
		for _, register := range kind.Register {
			if err := register(scheme); err != nil {
				return err
			}
		}
	}
	return nil
}
