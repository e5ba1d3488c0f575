// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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
	client func() client.Client
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

// lag is how far a cache may be behind at most. Who still sees, after that, what was before our write, sees an API server whose store has been
// replaced by an older one.
const lag = 30 * time.Second

// moment is how long the news of a write takes at most, most of the time.
const moment = 5 * time.Second

// written is what is known of the last time.
type written struct {
	at      time.Time
	intent  [sha256.Size]byte
	version string
	uid     types.UID
	// fields is what we owned since then, as the API server wrote it.
	fields [sha256.Size]byte
}

// NewApplier returns an applier that writes with c in the name of owner.
func NewApplier(c client.Client, owner string) *Applier {
	return NewApplierOf(func() client.Client { return c }, owner)
}

// NewApplierOf is NewApplier with a client that is asked for before each use: it may be another one each time.
func NewApplierOf(c func() client.Client, owner string) *Applier {
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

// Recall looks whether the live object has the intent already, remembers it if so, and writes nothing. After it, ApplyTo recognises the
// object by its metadata alone.
func (a *Applier) Recall(intent runtime.ApplyConfiguration, live client.Object) (held bool, err error) {
	wish, err := newWish(intent, "")
	if err != nil {
		return false, err
	}
	return a.unchanged(wish, live), nil
}

// Remembers says whether it is known what was last written to an object. If not, only the whole live object can show that nothing has to be.
func (a *Applier) Remembers(kind schema.GroupVersionKind, name client.ObjectKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.last[target{kind: kind, name: name}]
	return known
}

// JustWritten says whether the intent was written a moment ago: a cache that does not have the object is behind, unless it was deleted since,
// which the caller has to tell (Forget).
func (a *Applier) JustWritten(intent runtime.ApplyConfiguration) bool {
	wish, err := newWish(intent, "")
	if err != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.last[wish.target]
	return known && last.intent == wish.hash && time.Since(last.at) < moment
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
	made, err := a.client().Scheme().New(wish.kind)
	if err != nil {
		return fmt.Errorf("read %s before it is applied: %w", wish, err)
	}
	live, ok := made.(client.Object)
	if !ok {
		return fmt.Errorf("read %s before it is applied: %T is no object", wish, made)
	}
	switch err := a.client().Get(ctx, wish.name, live); {
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
		err = a.client().Status().Apply(ctx, config, client.FieldOwner(a.owner), client.ForceOwnership)
	} else {
		err = a.client().Apply(ctx, config, client.FieldOwner(a.owner), client.ForceOwnership)
	}
	if err != nil {
		count(a.owner, "failed")
		return fmt.Errorf("apply %s: %w", w, err)
	}
	count(a.owner, "applied")
	a.remember(w, sent)
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
		late := order < 0 && time.Since(last.at) > lag
		if order <= 0 && !late && last.intent == w.hash {
			return true // what is not newer than our own write cannot have undone it
		}
		if order < 0 && !late {
			return false // a cache is behind: it shows what was before our write, and proves nothing
		}
		// Who changes or takes away a field of ours takes it from what we own: as long as we own the same, nobody did.
		if !late && last.intent == w.hash && last.fields != nothing && last.fields == owned(live, a.owner, w.part) {
			return true
		}
	}
	if !holds(w.fields, live, a.owner, w.part) {
		return false
	}
	a.remember(w, live)
	return true
}

func (a *Applier) remember(w wish, live client.Object) {
	is := written{at: time.Now(), intent: w.hash, version: live.GetResourceVersion(), uid: live.GetUID(), fields: owned(live, a.owner, w.part)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[w.target] = is
}

var nothing [sha256.Size]byte

// owned is a fingerprint of the fields that the owner has in the live object; nothing if that does not say.
func owned(live client.Object, owner, part string) [sha256.Size]byte {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == owner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == part && entry.FieldsV1 != nil {
			return fingerprint(entry.FieldsV1.GetRawBytes())
		}
	}
	return nothing
}

// fingerprint of owned fields, which may be one already.
func fingerprint(raw []byte) (sum [sha256.Size]byte) {
	var fields any // the order of the keys depends on the way here
	if utiljson.Unmarshal(raw, &fields) != nil {
		return nothing
	}
	if already, is := fields.(string); is {
		if n, err := hex.Decode(sum[:], []byte(already)); err != nil || n != len(sum) {
			return nothing
		}
		return sum
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nothing
	}
	return sha256.Sum256(text)
}

// Fingerprint keeps, of the managed fields of an object, what ApplyTo needs to see that nobody changed what the owner applied, and drops the
// rest. It is less than Owned keeps, for caches that hold metadata only.
func Fingerprint(object metav1.Object, owner string) {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == owner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil {
			sum := fingerprint(entry.FieldsV1.GetRawBytes())
			kept = append(kept, metav1.ManagedFieldsEntry{
				Manager: owner, Operation: entry.Operation, Subresource: entry.Subresource, FieldsV1: metav1.NewFieldsV1(`"` + hex.EncodeToString(sum[:]) + `"`),
			})
		}
	}
	object.SetManagedFields(kept)
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
