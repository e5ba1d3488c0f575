// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// forcedTime is for the one attempt that a forced end makes.
const forcedTime = 3 * time.Second

// leaving is what the worker remembers of an object on its way out.
type leaving struct {
	// drained is when our finalizer was first seen to be the last one.
	drained time.Time
	// accepted: the provider took the deletion of the copy. From then on, that we may not come in any more means
	// that the tenant is gone, and the copy with it.
	accepted bool
}

// finish ends an object: when nobody else holds it any more, the copy goes, and then our finalizer.
func (d *desk) finish(ctx context.Context, k key, local client.Object, l *link) (again time.Duration, err error) {
	if !slices.Contains(local.GetFinalizers(), labels.FinalizerReplication) {
		return 0, nil // it was never sent
	}
	if len(local.GetFinalizers()) > 1 {
		return d.follow(ctx, k, local, l)
	}
	memory, ok := d.leaving[local.GetUID()]
	if !ok {
		memory = &leaving{drained: d.r.options.Now()}
		d.leaving[local.GetUID()] = memory
	}
	end := ending{
		deleted: local.GetDeletionTimestamp().Time, drained: memory.drained,
		forced: local.GetAnnotations()[labels.ForceUnpeer] == yes, ready: l != nil && l.State().Ready,
	}
	gone, err := d.remove(ctx, k, l, memory, end.forced)
	if err == nil && gone {
		return 0, d.release(ctx, local)
	}
	if wait := end.deadline().Sub(d.r.options.Now()); wait > 0 {
		return wait, err
	}
	where := ""
	if l != nil {
		where = l.connection.Namespace()
	}
	kind := d.r.kinds[k.kind]
	d.log.Info("the copy may be left at the peer, its deadline is over", "kind", kind.name, "object", k.name, "accepted", memory.accepted)
	d.r.events.Eventf(local, nil, corev1.EventTypeWarning, "CopyMayBeLeft", "EndReplication", "%s",
		leftover(kind.name, k.name.Name, d.id, where, memory.accepted))
	return 0, d.release(ctx, local)
}

// follow goes on to bring the status of an object that others still hold.
func (d *desk) follow(ctx context.Context, k key, local client.Object, l *link) (again time.Duration, err error) {
	s := l.session().knowing(k.kind)
	if s == nil {
		return 0, nil
	}
	kind := d.r.kinds[k.kind]
	remote, err := s.remote(ctx, kind, s.cache, s.name(k))
	if err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return d.bring(ctx, kind, local, remote)
}

// remove deletes the copy, and says whether it is gone: that it is not in the cache is no proof.
func (d *desk) remove(ctx context.Context, k key, l *link, memory *leaving, forced bool) (gone bool, err error) {
	if l != nil && l.State().Unauthorized && memory.accepted {
		return true, nil
	}
	s := l.session().knowing(k.kind)
	if s == nil {
		return false, nil
	}
	if forced {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, forcedTime)
		defer cancel()
	}
	remote, err := d.r.kinds[k.kind].untyped(d.r.mgr.GetScheme())
	if err != nil {
		return false, err
	}
	err = s.cache.Get(ctx, s.name(k), remote)
	if apierrors.IsNotFound(err) {
		err = s.client.Get(ctx, s.name(k), remote)
	}
	if err == nil && remote.GetDeletionTimestamp() == nil {
		uid := remote.GetUID()
		// If it is gone with this call, the copy's event brings us here again.
		err = s.client.Delete(ctx, remote, client.Preconditions{UID: &uid})
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

// release takes our finalizer away.
func (d *desk) release(ctx context.Context, local client.Object) error {
	before := local.DeepCopyObject().(client.Object)
	local.SetFinalizers(slices.DeleteFunc(slices.Clone(local.GetFinalizers()), func(one string) bool { return one == labels.FinalizerReplication }))
	done, err := d.patch(ctx, local, before)
	if done {
		delete(d.leaving, local.GetUID())
	}
	return err
}
