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

	"liqo.io/liqo/internal/peering/replicate/kinds"
)

// maxFetched bounds the copies of a provider's objects of one kind: a hostile provider may write any number.
const maxFetched = 4

// fetch copies an object that the provider has for us to this cluster, and its status to the provider. local is the copy,
// nil if there is none. If the provider is connected to us, it replicates the same object: both write the same values, so
// the second write changes nothing.
func (w *worker) fetch(ctx context.Context, k key, local client.Object, c *connection) (requeueAfter time.Duration, err error) {
	p := c.cache().syncedFor(k.kind)
	if p == nil || c.namespace != k.name.Namespace {
		return 0, nil
	}
	kind := w.r.kinds[k.kind]
	remote, err := kind.Read(ctx, p.cache, w.r.mgr.GetScheme(), p.name(k))
	switch {
	case apierrors.IsNotFound(err):
		return 0, w.drop(ctx, k, local, p)
	case err != nil:
		return 0, err
	case !kinds.IsFor(remote, w.r.options.LocalClusterID) || remote.GetDeletionTimestamp() != nil:
		return 0, nil
	case local != nil && local.GetDeletionTimestamp() != nil:
		return 0, nil // once it is gone, its event triggers the next sync
	}
	if local == nil {
		if allowed, err := w.mayCopy(ctx, k, w.r.client); err != nil || !allowed {
			return 0, err
		}
	}
	if !w.fetchLimiter.AllowN(w.r.options.Now(), 1) {
		return writeInterval, nil
	}
	if local == nil {
		// Live, because the provider chooses the name: an object of ours or another copy may be missing in the cache.
		if allowed, err := w.mayCopy(ctx, k, w.r.live); err != nil || !allowed {
			return 0, err
		}
	}
	if err := w.r.applier.ApplyTo(ctx, kind.SpecIntent(remote, kinds.Copied(remote, w.id, k.name.Namespace)), local); err != nil {
		return 0, err
	}
	if local == nil {
		return 0, nil // the event of the copy triggers the next sync
	}
	answer := kind.StatusIntent(remote, local)
	if answer == nil {
		return 0, nil
	}
	return 0, client.IgnoreNotFound(p.applier.ApplyStatusTo(ctx, answer, remote))
}

// mayCopy reports whether one more copy may be created under this name.
func (w *worker) mayCopy(ctx context.Context, k key, reader client.Reader) (bool, error) {
	kind := w.r.kinds[k.kind]
	if faults := validation.IsDNS1123Subdomain(k.name.Name); len(faults) > 0 {
		w.log.Info("object of the peer not copied, its name is not valid", "kind", kind.Name, "name", kinds.Line(k.name.Name))
		return false, nil
	}
	list := kind.List()
	if err := reader.List(ctx, list, client.InNamespace(k.name.Namespace)); err != nil {
		return false, fmt.Errorf("count the copies before copying %s %s: %w", kind.Name, k.name, err)
	}
	taken, copies := false, 0
	eachItem(list, func(object client.Object) {
		taken = taken || object.GetName() == k.name.Name
		if kinds.IsCopy(object, w.id) {
			copies++
		}
	})
	if copies >= maxFetched {
		w.log.V(1).Info("object of the peer not copied, too many copies", "kind", kind.Name, "object", k.name, "copies", copies)
	}
	return !taken && copies < maxFetched, nil // if the name is taken, the event of that object follows
}

// drop deletes a copy whose original is gone. The cache may be stale, so it reads from the provider's API server.
func (w *worker) drop(ctx context.Context, k key, local client.Object, p *peerCache) error {
	if local == nil || local.GetDeletionTimestamp() != nil {
		return nil
	}
	kind := w.r.kinds[k.kind]
	remote, err := kind.Untyped(w.r.mgr.GetScheme())
	if err != nil {
		return err
	}
	if err := p.client.Get(ctx, p.name(k), remote); !isGone(err) {
		return err
	}
	w.log.Info("deleting the copy of an object that the peer deleted", "kind", kind.Name, "object", k.name)
	w.r.applier.Forget(k.name)
	p.applier.Forget(p.name(k))
	uid := local.GetUID()
	if err := w.r.client.Delete(ctx, local, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the copy %s of %s: %w", k.name, kind.Name, err)
	}
	p.enqueueAll() // another object may have been refused because of maxFetched
	return nil
}

// isGone reports whether the API server has no such object. An unknown kind is also a 404, but proves nothing.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
