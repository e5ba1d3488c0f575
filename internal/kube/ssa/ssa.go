// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// Applier writes the intents of one field owner, and skips every write that would change nothing. It is safe for concurrent use.
//
// For each object it remembers its last intent and the resource version that this write produced. After a restart, when it remembers
// nothing, it compares the intent with the managed fields of the live object.
type Applier struct {
	client func() client.Client
	owner  string

	mu   sync.Mutex
	last map[target]written
	// doubts are when writes failed without an answer of the API server: it may still receive them, after a later write of ours.
	doubts map[target]time.Time
	// swept is when doubts was last searched for expired ones: objects that are gone are not asked about again.
	swept time.Time
}

// target identifies what one apply writes to.
type target struct {
	kind schema.GroupVersionKind
	name client.ObjectKey
	part string // the subresource; empty for the object itself
}

// lag is the longest time that a cache may take to show our write. If the cache is still older than our write after this long, the API server
// was restored from a backup.
const lag = 30 * time.Second

// usualLag is how long a cache usually takes, at most, to show our write.
const usualLag = 5 * time.Second

// doubtFor is how long a write without an answer may still arrive: while a network is cut, the kernel sends it again and again, also after the program has
// given it up.
const doubtFor = 5 * time.Minute

// written describes the last write of an intent.
type written struct {
	at     time.Time
	intent [sha256.Size]byte
	// also is another intent that the object satisfies, as the caller knows; zero: none.
	also    [sha256.Size]byte
	version string
	uid     types.UID
	// fields is the fingerprint of the managed fields that the API server recorded for us after that write.
	fields [sha256.Size]byte
}

// NewApplier returns an applier that writes with c as the field owner.
func NewApplier(c client.Client, owner string) *Applier {
	return NewApplierOf(func() client.Client { return c }, owner)
}

// NewApplierOf is NewApplier with a function that returns the client. The applier calls it before each use, so the client may change.
func NewApplierOf(c func() client.Client, owner string) *Applier {
	return &Applier{client: c, owner: owner, last: map[target]written{}, doubts: map[target]time.Time{}}
}

// Apply writes the intent, unless the live object has it already. It reads the live object with the applier's client. If that client has a
// cache, the cache starts to watch the kind.
func (a *Applier) Apply(ctx context.Context, intent runtime.ApplyConfiguration) error {
	return a.readAndApply(ctx, intent, "")
}

// ApplyStatus is Apply on the status subresource.
func (a *Applier) ApplyStatus(ctx context.Context, intent runtime.ApplyConfiguration) error {
	return a.readAndApply(ctx, intent, statusPart)
}

// ApplyTo is Apply for a caller that has the live object; live is nil if the object does not exist.
func (a *Applier) ApplyTo(ctx context.Context, intent runtime.ApplyConfiguration, live client.Object) error {
	e, err := encode(intent, "")
	if err != nil {
		return err
	}
	return a.apply(ctx, e, live)
}

// ApplyStatusTo is ApplyStatus for a caller that has the live object.
func (a *Applier) ApplyStatusTo(ctx context.Context, intent runtime.ApplyConfiguration, live client.Object) error {
	e, err := encode(intent, statusPart)
	if err != nil {
		return err
	}
	return a.apply(ctx, e, live)
}

// Recall reports whether the live object has the intent already, and remembers it if so. It writes nothing. Afterwards ApplyTo recognises the
// object by its metadata alone.
func (a *Applier) Recall(intent runtime.ApplyConfiguration, live client.Object) (held bool, err error) {
	e, err := encode(intent, "")
	if err != nil {
		return false, err
	}
	return a.unchanged(e, live), nil
}

// Remembers reports whether the applier knows its last write to an object. If not, only the complete live object can prove that a write
// would change nothing.
func (a *Applier) Remembers(kind schema.GroupVersionKind, name client.ObjectKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.last[target{kind: kind, name: name}]
	return known
}

// JustWritten reports whether the applier wrote this intent within the last seconds. Then a cache without the object lags behind, unless the
// object was deleted since; the caller reports a deletion with Forget.
func (a *Applier) JustWritten(intent runtime.ApplyConfiguration) bool {
	e, err := encode(intent, "")
	if err != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.last[e.target]
	return known && last.has(e.hash) && time.Since(last.at) < usualLag
}

// Contested reports whether the live object lacks the intent although the applier's last write to it was the same one: another client has changed the
// object since.
func (a *Applier) Contested(intent runtime.ApplyConfiguration, live client.Object) bool {
	e, err := encode(intent, "")
	if err != nil {
		return false
	}
	a.mu.Lock()
	last, known := a.last[e.target]
	a.mu.Unlock()
	return known && last.has(e.hash) && !a.unchanged(e, live)
}

// Forget drops what the applier remembers of all kinds of objects with this name. Call it when the object has been deleted; a call that is
// too early costs one comparison. A write that may still arrive stays remembered: it may change a new object of the name.
func (a *Applier) Forget(name client.ObjectKey) {
	a.forget(func(one client.ObjectKey) bool { return one == name })
}

// ForgetNamespace is Forget for a namespace that is being deleted and all objects in it.
func (a *Applier) ForgetNamespace(namespace string) {
	itself := client.ObjectKey{Name: namespace}
	a.forget(func(one client.ObjectKey) bool { return one == itself || one.Namespace == namespace })
}

func (a *Applier) forget(gone func(client.ObjectKey) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.last, func(of target, _ written) bool { return gone(of.name) })
}

// Apply is Applier.Apply without a memory, for callers that apply an object now and then. It reads the live object with c first and skips the
// write if the object has the intent already.
func Apply(ctx context.Context, c client.Client, intent runtime.ApplyConfiguration, owner string) error {
	return NewApplier(c, owner).Apply(ctx, intent)
}

// encoded is an intent in the form that is sent.
type encoded struct {
	target
	fields map[string]any
	hash   [sha256.Size]byte
}

func encode(intent runtime.ApplyConfiguration, part string) (encoded, error) {
	text, err := json.Marshal(intent) // keys of maps are sorted, so equal intents have equal texts
	if err != nil {
		return encoded{}, fmt.Errorf("encode the intent: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return encoded{}, fmt.Errorf("an intent needs apiVersion, kind and name: %w", err)
	}
	return encoded{
		target: target{kind: object.GroupVersionKind(), name: client.ObjectKeyFromObject(object), part: part},
		fields: object.Object, hash: sha256.Sum256(text),
	}, nil
}

func (e encoded) String() string {
	text := e.kind.Kind + " " + e.name.String()
	if e.name.Namespace == "" {
		text = e.kind.Kind + " " + e.name.Name
	}
	if e.part != "" {
		text = e.part + " of " + text
	}
	return text
}

func (a *Applier) readAndApply(ctx context.Context, intent runtime.ApplyConfiguration, part string) error {
	e, err := encode(intent, part)
	if err != nil {
		return err
	}
	// Read the Go type: a cache keeps typed and unstructured objects separately.
	made, err := a.client().Scheme().New(e.kind)
	if err != nil {
		return fmt.Errorf("read %s before it is applied: %w", e, err)
	}
	live, ok := made.(client.Object)
	if !ok {
		return fmt.Errorf("read %s before it is applied: %T is no object", e, made)
	}
	switch err := a.client().Get(ctx, e.name, live); {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return fmt.Errorf("read %s before it is applied: %w", e, err)
	}
	return a.apply(ctx, e, live)
}

func (a *Applier) apply(ctx context.Context, e encoded, live client.Object) error {
	if live != nil && a.unchanged(e, live) {
		count(a.owner, "skipped")
		return nil
	}
	// The client decodes the response into the object that it sent: send a copy.
	sent := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(e.fields)}
	config := client.ApplyConfigurationFromUnstructured(sent)
	var err error
	if e.part == statusPart {
		err = a.client().Status().Apply(ctx, config, client.FieldOwner(a.owner), client.ForceOwnership)
	} else {
		err = a.client().Apply(ctx, config, client.FieldOwner(a.owner), client.ForceOwnership)
	}
	if err != nil {
		count(a.owner, "failed")
		a.doubt(e, err)
		return fmt.Errorf("apply %s: %w", e, err)
	}
	count(a.owner, "applied")
	a.remember(e, sent)
	return nil
}

// unchanged returns true if it can prove that writing the intent would change nothing.
func (a *Applier) unchanged(e encoded, live client.Object) bool {
	a.mu.Lock()
	last, known := a.last[e.target]
	doubtful := a.doubtful(e.target)
	a.mu.Unlock()
	if known && last.uid == live.GetUID() && last.version != "" {
		order, err := resourceversion.CompareResourceVersion(live.GetResourceVersion(), last.version)
		if err != nil {
			order = 1 // not comparable: compare the fields
		}
		late := order < 0 && time.Since(last.at) > lag
		if order <= 0 && !late && last.has(e.hash) {
			return true // an object that is not newer than our own write cannot contradict it
		}
		if order < 0 && !late {
			return false // the cache shows the object as it was before our write, which proves nothing
		}
		// A client that changes or removes a field of ours removes it from our managed fields. If these are the same, no client did; but an earlier write
		// of ours may have arrived late.
		if !late && !doubtful && last.has(e.hash) && last.fields != noFingerprint && last.fields == owned(live, a.owner, e.part) {
			return true
		}
	}
	if !holds(e.fields, live, a.owner, e.part) {
		return false
	}
	a.remember(e, live)
	return true
}

// doubt records that the API server may have received a write, or will. An answer of it leaves no doubt.
func (a *Applier) doubt(e encoded, err error) {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubts[e.target] = now
	if now.Sub(a.swept) < doubtFor {
		return
	}
	a.swept = now
	maps.DeleteFunc(a.doubts, func(_ target, at time.Time) bool { return now.Sub(at) > doubtFor })
}

// doubtful reports whether an earlier write may still arrive. The lock is held.
func (a *Applier) doubtful(t target) bool {
	at, is := a.doubts[t]
	if is && time.Since(at) > doubtFor {
		delete(a.doubts, t)
		return false
	}
	return is
}

func (a *Applier) remember(e encoded, live client.Object) {
	is := written{at: time.Now(), intent: e.hash, version: live.GetResourceVersion(), uid: live.GetUID(), fields: owned(live, a.owner, e.part)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[e.target] = is
}

var noFingerprint [sha256.Size]byte

// owned returns a fingerprint of the fields that the owner has in the live object, or noFingerprint if the object does not list them.
func owned(live client.Object, owner, part string) [sha256.Size]byte {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == owner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == part && entry.FieldsV1 != nil {
			return fingerprint(entry.FieldsV1.GetRawBytes())
		}
	}
	return noFingerprint
}

// fingerprint hashes managed fields. If raw is the result of Fingerprint, it returns that hash.
func fingerprint(raw []byte) (sum [sha256.Size]byte) {
	var fields any // the API server does not always send the keys in the same order
	if utiljson.Unmarshal(raw, &fields) != nil {
		return noFingerprint
	}
	if hashed, ok := fields.(string); ok {
		if n, err := hex.Decode(sum[:], []byte(hashed)); err != nil || n != len(sum) {
			return noFingerprint
		}
		return sum
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return noFingerprint
	}
	return sha256.Sum256(text)
}

// Fingerprint replaces the managed fields of an object by a hash of those that the owner applied. That is enough for ApplyTo to detect a
// change by another client. It keeps less than Owned does, for caches that hold only metadata.
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

// Owned returns a cache transform that drops all managed fields except those that this package needs to recognise its own intents.
func Owned(isOurs func(owner string) bool) func(any) (any, error) {
	return func(in any) (any, error) {
		object, ok := in.(metav1.Object)
		if !ok {
			return in, nil // a tombstone of an object whose deletion the watch missed
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
