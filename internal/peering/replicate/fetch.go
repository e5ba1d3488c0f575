// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostFetched is how many objects of a kind a provider may have for us: how many copies it can make us keep.
const mostFetched = 4

// fetch copies an object that the provider has for us, and tells it what was made of it here: spec here, status there.
// local is the copy, nil if there is none. If the provider has a link to us, it copies the same object, to the same effect:
// whoever is first has written what the other wants to.
func (d *desk) fetch(ctx context.Context, k key, local client.Object, l *link) (again time.Duration, err error) {
	s := l.session().knowing(k.kind)
	if s == nil || l.namespace != k.name.Namespace {
		return 0, nil
	}
	kind := d.r.kinds[k.kind]
	remote, err := s.remote(ctx, kind, s.cache, s.name(k))
	switch {
	case apierrors.IsNotFound(err):
		return 0, d.drop(ctx, k, local, s)
	case err != nil:
		return 0, err
	case !isFor(remote, d.r.options.LocalClusterID) || remote.GetDeletionTimestamp() != nil:
		return 0, nil
	case local != nil && local.GetDeletionTimestamp() != nil:
		return 0, nil // once it is gone, its event brings us here again
	}
	if local == nil {
		if room, err := d.room(ctx, k, d.r.here); err != nil || !room {
			return 0, err
		}
	}
	if !d.fetching.Allow() {
		return bringPause, nil
	}
	if local == nil {
		// The name is the provider's choice: what the cache has not heard of, an object of ours or one more copy, counts, too.
		if room, err := d.room(ctx, k, d.r.live); err != nil || !room {
			return 0, err
		}
	}
	if err := d.r.own.ApplyTo(ctx, kind.there(remote, copied(remote, d.id, k.name.Namespace)), local); err != nil {
		return 0, err
	}
	if local == nil {
		return 0, nil // the copy's event brings us here again
	}
	answer := kind.here(remote, local)
	if answer == nil {
		return 0, nil
	}
	return 0, client.IgnoreNotFound(s.there.ApplyStatusTo(ctx, answer, remote))
}

// room tells whether one more copy may be made under this name.
func (d *desk) room(ctx context.Context, k key, reader client.Reader) (bool, error) {
	kind := d.r.kinds[k.kind]
	if faults := validation.IsDNS1123Subdomain(k.name.Name); len(faults) > 0 {
		d.log.Info("object of the peer not copied, its name is none", "kind", kind.name, "name", short(k.name.Name))
		return false, nil
	}
	list := kind.list()
	if err := reader.List(ctx, list, client.InNamespace(k.name.Namespace)); err != nil {
		return false, fmt.Errorf("look for room for a copy of %s %s: %w", kind.name, k.name, err)
	}
	taken, copies := false, 0
	eachItem(list, func(object client.Object) {
		taken = taken || object.GetName() == k.name.Name
		if isCopy(object, d.id) {
			copies++
		}
	})
	if copies >= mostFetched {
		d.log.V(1).Info("object of the peer not copied, it has enough", "kind", kind.name, "object", k.name, "copies", copies)
	}
	return !taken && copies < mostFetched, nil // of what has the name, an event is on its way
}

// drop deletes a copy whose original the provider does not have any more. The cache may be behind, so it is asked.
func (d *desk) drop(ctx context.Context, k key, local client.Object, s *session) error {
	if local == nil || local.GetDeletionTimestamp() != nil {
		return nil
	}
	kind := d.r.kinds[k.kind]
	remote, err := kind.untyped(d.r.mgr.GetScheme())
	if err != nil {
		return err
	}
	if err := s.client.Get(ctx, s.name(k), remote); !isGone(err) {
		return err
	}
	d.log.Info("copy of an object that the peer deleted is deleted", "kind", kind.name, "object", k.name)
	d.r.own.Forget(k.name)
	s.there.Forget(s.name(k))
	uid := local.GetUID()
	if err := d.r.here.Delete(ctx, local, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the copy %s of %s: %w", k.name, kind.name, err)
	}
	s.lookAtAll() // another one may have waited for its place
	return nil
}

// isGone tells whether an API server says that it has no such object. That it does not know the kind is said with the
// same number, and proves nothing.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
