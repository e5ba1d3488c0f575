// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/objects"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// maxStatus bounds the status that a peer writes here, in bytes of JSON.
const maxStatus = 256 << 10

// statuses brings back the status of the copies of one kind.
type statuses struct {
	kinds  *Kinds
	kind   *kinds.Kind
	copies *objects.Reflector
	queue  *fairqueue.Queue
	remote *fanin.Source // the copies with their status
	pace   *ratelimit.Limiter[types.NamespacedName]
}

// The status of an object is written back at once statusBurst times, then once a second.
const (
	statusPerSecond = 1
	statusBurst     = 10
	pacedObjects    = 10_000
)

// newStatuses adds the loop that brings back the status of copies.
func (c *Kinds) newStatuses(of *kinds.Kind, copies *objects.Reflector, queue *fairqueue.Queue) *statuses {
	e := c.engine
	s := &statuses{kinds: c, kind: of, copies: copies, queue: queue, pace: ratelimit.New[types.NamespacedName](statusPerSecond, statusBurst, pacedObjects)}
	s.remote = fanin.New(fanin.Options{
		Object: objects.Empty(of.Remote), List: objects.EmptyList(of.Remote), Trim: trimToStatus,
		Select: []client.ListOption{client.MatchingLabels{labels.Origin: e.Identities().LocalID, labels.Destination: e.Identities().RemoteID}},
		Client: e.Remote.WaitForClient,
		Changed: func(before, after client.Object) {
			object := engine.Either(before, after)
			if mapping := e.Namespaces.Remote(object.GetNamespace()); mapping != nil {
				s.queue.Add(types.NamespacedName{Namespace: mapping.Local, Name: object.GetName()})
			}
		},
	})
	e.Add(&engine.Loop{Name: of.Name(), Workers: workers, Queue: s.queue, Process: s.reconcile, Inbound: true})
	return s
}

// statusOwner is the field manager of the status that this peer reports. Each peer has its own, since they may take turns.
func (c *Kinds) statusOwner() string {
	owner := labels.OwnerReflection + "/" + c.engine.Identities().RemoteID
	return owner[:min(len(owner), 128)]
}

// trimLocal keeps of the managed fields only whether the status is ours.
func (c *Kinds) trimLocal(object client.Object) {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == c.statusOwner() {
			kept = []metav1.ManagedFieldsEntry{{Manager: entry.Manager, Operation: entry.Operation}}
		}
	}
	object.SetManagedFields(kept)
}

// trimToStatus drops what we know of a copy.
func trimToStatus(object client.Object) {
	if copied, ok := object.(*unstructured.Unstructured); ok {
		copied.SetManagedFields(nil)
		for field := range copied.Object {
			if field != "apiVersion" && field != "kind" && field != "metadata" && field != "status" {
				delete(copied.Object, field)
			}
		}
	}
}

// reconcile writes the status of one local object.
func (s *statuses) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	e := s.kinds.engine
	mapping, _ := e.Namespaces.Local(key.Namespace)
	local, ok := s.copies.Local.Get(key).(*unstructured.Unstructured)
	if mapping == nil || !ok || local.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	_, comesBack := s.kinds.wants(mapping, s.kind.Remote.GroupVersionKind)
	if mapping.Terminating() {
		comesBack = false // the copies are going
	}
	remote, exists := s.remote.Get(types.NamespacedName{Namespace: mapping.Remote, Name: key.Name}).(*unstructured.Unstructured)
	var status map[string]any
	switch {
	case !comesBack || mapping.Skips(local):
		if len(local.GetManagedFields()) == 0 {
			return 0, nil // it is not ours
		}
	case !exists:
		return 0, nil // it is still to be created
	default:
		status = kinds.CustomStatus(remote)
	}
	if shown, _ := local.Object["status"].(map[string]any); len(shown) == 0 && len(status) == 0 || equality.Semantic.DeepEqual(shown, status) {
		return 0, nil
	}
	text, err := json.Marshal(status)
	if err != nil || len(text) > maxStatus {
		e.Recorder.Failed(local, s.kind.Name(), events.ReasonFailed,
			fmt.Errorf("the status of the copy in cluster %q is longer than %d bytes, and does not come back", e.RemoteName(), maxStatus))
		return 0, nil
	}
	now := time.Now()
	if !s.pace.Allow(key, now) {
		return time.Second, nil
	}
	if wait := e.SpendStatus(len(text), now); wait > 0 {
		return wait, nil
	}
	err = s.write(ctx, local, status)
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil // the event of its deletion follows
	case apierrors.IsForbidden(err) || refusals.Final(err):
		e.Recorder.Failed(local, s.kind.Name(), events.ReasonFailed, fmt.Errorf("the status of the copy in cluster %q does not come back: %w", e.RemoteName(), err))
		e.CountFailure(key.Namespace, s.kind.Name())
		return refusals.Retry, nil
	}
	return 0, err
}

// write replaces the status of a local object. Server-side apply does not suit: an intent without fields leaves null
// behind, which the schemas of most kinds refuse.
func (s *statuses) write(ctx context.Context, local *unstructured.Unstructured, status map[string]any) error {
	next := local.DeepCopy()
	next.SetManagedFields(nil)
	delete(next.Object, "status")
	if status != nil {
		next.Object["status"] = status
	}
	if err := s.kinds.engine.Local.Status().Update(ctx, next, client.FieldOwner(s.kinds.statusOwner())); err != nil {
		return fmt.Errorf("write the status of %s %s: %w", s.kind.Name(), client.ObjectKeyFromObject(local), err)
	}
	return nil
}
