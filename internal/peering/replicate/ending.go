// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
)

// forcedTimeout is for the single attempt of a forced deletion.
const forcedTimeout = 3 * time.Second

// deletion is the state of an object that is being deleted.
type deletion struct {
	// drained is when our finalizer was first seen to be the last one.
	drained time.Time
	// accepted: the provider accepted the deletion of the copy. If it rejects our identity after that, the tenant is gone,
	// and the copy with it.
	accepted bool
}

// finish ends an object: once our finalizer is the last one, it deletes the copy and then removes the finalizer.
func (w *worker) finish(ctx context.Context, k key, local client.Object, c *connection) (requeueAfter time.Duration, err error) {
	if !slices.Contains(local.GetFinalizers(), labels.FinalizerReplication) {
		return 0, nil // it was never sent
	}
	if len(local.GetFinalizers()) > 1 {
		return w.followStatus(ctx, k, local, c)
	}
	memory, ok := w.deletions[local.GetUID()]
	if !ok {
		memory = &deletion{drained: w.r.options.Now()}
		w.deletions[local.GetUID()] = memory
	}
	end := ending{
		deleted: local.GetDeletionTimestamp().Time, drained: memory.drained,
		forced: local.GetAnnotations()[labels.ForceUnpeer] == labels.True, ready: c != nil && c.State().Ready,
	}
	gone, err := w.remove(ctx, k, c, memory, end.forced)
	if err == nil && gone {
		return 0, w.removeFinalizer(ctx, local)
	}
	if wait := end.deadline().Sub(w.r.options.Now()); wait > 0 {
		return wait, err
	}
	where := ""
	if c != nil {
		where = c.api.Namespace()
	}
	kind := w.r.kinds[k.kind]
	w.log.Info("deadline exceeded, the copy may be left in the peer", "kind", kind.Name, "object", k.name, "accepted", memory.accepted)
	w.r.events.Eventf(local, nil, corev1.EventTypeWarning, reasons.CopyMayBeLeft, "EndReplication", "%s",
		leftover(kind.Name, k.name.Name, w.id, where, memory.accepted))
	return 0, w.removeFinalizer(ctx, local)
}

// followStatus keeps updating the status of a deleted object that has other finalizers.
func (w *worker) followStatus(ctx context.Context, k key, local client.Object, c *connection) (requeueAfter time.Duration, err error) {
	p := c.cache().syncedFor(k.kind)
	if p == nil {
		return 0, nil
	}
	kind := w.r.kinds[k.kind]
	remote, err := kind.Read(ctx, p.cache, w.r.mgr.GetScheme(), p.name(k))
	if err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return w.writeStatus(ctx, kind, local, remote)
}

// remove deletes the copy and reports whether it is gone. Its absence from the cache is no proof.
func (w *worker) remove(ctx context.Context, k key, c *connection, memory *deletion, forced bool) (gone bool, err error) {
	if c != nil && c.State().Unauthorized && memory.accepted {
		return true, nil
	}
	p := c.cache().syncedFor(k.kind)
	if p == nil {
		return false, nil
	}
	if forced {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, forcedTimeout)
		defer cancel()
	}
	remote, err := w.r.kinds[k.kind].Untyped(w.r.mgr.GetScheme())
	if err != nil {
		return false, err
	}
	err = p.cache.Get(ctx, p.name(k), remote)
	if apierrors.IsNotFound(err) {
		err = p.client.Get(ctx, p.name(k), remote)
	}
	if err == nil && remote.GetDeletionTimestamp() == nil {
		uid := remote.GetUID()
		// Once the copy is gone, its event triggers the next sync.
		err = p.client.Delete(ctx, remote, client.Preconditions{UID: &uid})
	}
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		if memory.accepted {
			return true, nil
		}
		return false, err
	case err != nil:
		return false, err
	}
	memory.accepted = true
	return false, nil
}

// removeFinalizer removes our finalizer, the last one.
func (w *worker) removeFinalizer(ctx context.Context, local client.Object) error {
	done, err := w.finalizer(ctx, local, controllerutil.RemoveFinalizer)
	if done {
		delete(w.deletions, local.GetUID())
	}
	return err
}
