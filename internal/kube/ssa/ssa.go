// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusPart is the subresource that ApplyStatus writes.
const statusPart = "status"

// Applier writes what one field owner wants, and only if that changes something. It may be used by many at once.
//
// It remembers, per object, its last intent and the version that the write brought about. After a restart, when it
// remembers nothing, it takes from the live object's managed fields whether the intent is there already.
type Applier struct {
	client client.Client
	owner  string

	mu   sync.Mutex
	last map[target]written
}

// target is what one apply writes to.
type target struct {
	kind schema.GroupVersionKind
	name client.ObjectKey
	part string
}

// written is what is known of the last time.
type written struct {
	intent  [sha256.Size]byte
	version string
	uid     types.UID
}

// NewApplier returns an applier that writes with c in the name of owner.
func NewApplier(c client.Client, owner string) *Applier {
	return &Applier{client: c, owner: owner, last: map[target]written{}}
}

// Apply writes the intent, unless the live object has it already. It reads that with the applier's client: from the
// cache if that client has one, which then watches the kind.
func (a *Applier) Apply(ctx context.Context, intent runtime.ApplyConfiguration) error {
	return a.readAndApply(ctx, intent, "")
}

// ApplyStatus is Apply on the status subresource.
func (a *Applier) ApplyStatus(ctx context.Context, intent runtime.ApplyConfiguration) error {
	return a.readAndApply(ctx, intent, statusPart)
}

// ApplyTo is Apply with the live object in hand; nil if there is none.
func (a *Applier) ApplyTo(ctx context.Context, intent runtime.ApplyConfiguration, live client.Object) error {
	wish, err := newWish(intent, "")
	if err != nil {
		return err
	}
	return a.apply(ctx, wish, live)
}

// ApplyStatusTo is ApplyStatus with the live object in hand.
func (a *Applier) ApplyStatusTo(ctx context.Context, intent runtime.ApplyConfiguration, live client.Object) error {
	wish, err := newWish(intent, statusPart)
	if err != nil {
		return err
	}
	return a.apply(ctx, wish, live)
}

// Forget drops what is remembered of an object, of whatever kind its name is used for. Call it when the object is
// gone for good; forgetting too early costs a comparison.
func (a *Applier) Forget(name client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for target := range a.last {
		if target.name == name {
			delete(a.last, target)
		}
	}
}

// Apply writes the intent once, without a memory: for callers that apply an object now and then. It asks the API
// server through c for the live object first, and leaves the write out if that has the intent already.
func Apply(ctx context.Context, c client.Client, intent runtime.ApplyConfiguration, owner string) error {
	return NewApplier(c, owner).Apply(ctx, intent)
}

// wish is an intent in the form that is sent.
type wish struct {
	target
	fields map[string]any
	hash   [sha256.Size]byte
}

func newWish(intent runtime.ApplyConfiguration, part string) (wish, error) {
	text, err := json.Marshal(intent) // keys of maps are sorted, so equal intents have equal texts
	if err != nil {
		return wish{}, fmt.Errorf("encode the intent: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return wish{}, fmt.Errorf("an intent needs apiVersion, kind and name: %w", err)
	}
	return wish{
		target: target{kind: object.GroupVersionKind(), name: client.ObjectKeyFromObject(object), part: part},
		fields: object.Object, hash: sha256.Sum256(text),
	}, nil
}

func (w wish) String() string {
	text := w.kind.Kind + " " + w.name.String()
	if w.name.Namespace == "" {
		text = w.kind.Kind + " " + w.name.Name
	}
	if w.part != "" {
		text = w.part + " of " + text
	}
	return text
}

func (a *Applier) readAndApply(ctx context.Context, intent runtime.ApplyConfiguration, part string) error {
	wish, err := newWish(intent, part)
	if err != nil {
		return err
	}
	// With the Go type, because a cache holds typed and untyped objects apart.
	made, err := a.client.Scheme().New(wish.kind)
	if err != nil {
		return fmt.Errorf("read %s before it is applied: %w", wish, err)
	}
	live, ok := made.(client.Object)
	if !ok {
		return fmt.Errorf("read %s before it is applied: %T is no object", wish, made)
	}
	switch err := a.client.Get(ctx, wish.name, live); {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return fmt.Errorf("read %s before it is applied: %w", wish, err)
	}
	return a.apply(ctx, wish, live)
}

func (a *Applier) apply(ctx context.Context, w wish, live client.Object) error {
	if live != nil && a.unchanged(w, live) {
		count(a.owner, "skipped")
		return nil
	}
	// The answer is decoded into what was sent, and only its metadata is of use: send a copy.
	sent := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.fields)}
	config := client.ApplyConfigurationFromUnstructured(sent)
	var err error
	if w.part == statusPart {
		err = a.client.Status().Apply(ctx, config, client.FieldOwner(a.owner), client.ForceOwnership)
	} else {
		err = a.client.Apply(ctx, config, client.FieldOwner(a.owner), client.ForceOwnership)
	}
	if err != nil {
		count(a.owner, "failed")
		return fmt.Errorf("apply %s: %w", w, err)
	}
	count(a.owner, "applied")
	a.remember(w, sent.GetUID(), sent.GetResourceVersion())
	return nil
}

// unchanged says whether to write the wish would change nothing, as far as that can be proved.
func (a *Applier) unchanged(w wish, live client.Object) bool {
	a.mu.Lock()
	last, known := a.last[w.target]
	a.mu.Unlock()
	if known && last.uid == live.GetUID() && last.version != "" {
		order, err := resourceversion.CompareResourceVersion(live.GetResourceVersion(), last.version)
		if err != nil {
			order = 1 // nothing is known: look at the fields
		}
		if order <= 0 && last.intent == w.hash {
			return true // what is not newer than our own write cannot have undone it
		}
		if order < 0 {
			return false // a cache is behind: it shows what was before our write, and proves nothing
		}
	}
	if !holds(w.fields, live, a.owner, w.part) {
		return false
	}
	a.remember(w, live.GetUID(), live.GetResourceVersion())
	return true
}

func (a *Applier) remember(w wish, uid types.UID, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[w.target] = written{intent: w.hash, version: version, uid: uid}
}

// Owned keeps, of the managed fields of an object, what this package needs to recognise its own intents, and drops
// the rest: it is the transform of a cache.
func Owned(isOurs func(owner string) bool) func(any) (any, error) {
	return func(in any) (any, error) {
		object, ok := in.(metav1.Object)
		if !ok {
			return in, nil // the key of an object deleted unseen
		}
		var kept []metav1.ManagedFieldsEntry
		for _, entry := range object.GetManagedFields() {
			if entry.Operation == metav1.ManagedFieldsOperationApply && isOurs(entry.Manager) {
				kept = append(kept, entry)
			}
		}
		object.SetManagedFields(kept)
		return in, nil
	}
}
