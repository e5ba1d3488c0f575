// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// pageSize is that of the one list of whole objects that a restart costs.
const pageSize = 200

// visitRemote lists our objects in the remote namespace page by page and calls visit for each. It calls visit again for objects that visit could not
// decide (an error other than ErrRefused), for up to settleTimeout: the other objects do not wait longer for them. If known shows that there are none of
// ours, it sends no request. An error means that the mapping has ended.
func (f *remoteCluster) visitRemote(mapping *mapping, known *fanin.Source, list func() client.ObjectList, visit func(client.Object) error) error {
	if !slices.ContainsFunc(known.All(mapping.Remote), func(object client.Object) bool { return mapping.Reflected(object) }) {
		return nil
	}
	var undecided []client.Object
	try := func(object client.Object) {
		if err := visit(object); err != nil && !errors.Is(err, project.ErrRefused) {
			undecided = append(undecided, object)
		}
	}
	read, since := false, time.Time{}
	for wait := firstBackoff; ; wait = min(2*wait, 5*time.Second) {
		if !read {
			undecided = nil
			err := f.listPages(mapping, list, try)
			if read = err == nil; !read {
				log.FromContext(mapping.ctx).V(1).Info("could not list the remote namespace", "reason", err.Error())
			}
		} else {
			retry := undecided
			undecided = nil
			for _, object := range retry {
				try(object)
			}
		}
		switch {
		case read && len(undecided) == 0:
			return nil
		case read && since.IsZero():
			since = time.Now()
		case read && time.Since(since) > settleTimeout:
			return nil
		}
		select {
		case <-mapping.ctx.Done():
			return mapping.ctx.Err()
		case <-time.After(wait):
		}
	}
}

// listPages calls visit for all our objects in the remote namespace. If a page is too large for one answer, or for the time that an answer may take, it
// asks for smaller pages.
func (f *remoteCluster) listPages(mapping *mapping, list func() client.ObjectList, visit func(client.Object)) error {
	ours := client.MatchingLabels{labels.Origin: mapping.LocalID, labels.Destination: mapping.RemoteID}
	limit := int64(pageSize)
	for next := ""; ; {
		c, err := f.waitForClient(mapping.ctx)
		if err != nil {
			return err
		}
		page := list()
		if err := c.List(mapping.ctx, page, client.InNamespace(mapping.Remote), ours, client.Limit(limit), client.Continue(next)); err != nil {
			if limit == 1 || mapping.ctx.Err() != nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				return err
			}
			limit = max(limit/4, 1)
			continue
		}
		err = meta.EachListItem(page, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				visit(object)
			}
			return nil
		})
		if next = page.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}

// liveObject returns the remote object to compare an intent with. Its metadata suffices if the applier remembers what we wrote; otherwise the whole
// object is read.
func (r *reflector) liveObject(mapping *mapping, remote *metav1.PartialObjectMetadata) (client.Object, error) {
	if remote == nil {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(remote)
	if mapping.appliers[r.kind.name].Remembers(r.kind.remoteKind, key) {
		return remote, nil
	}
	c, err := r.engine.remote.currentClient()
	if err != nil {
		return nil, err
	}
	made, err := r.engine.remote.scheme.New(r.kind.remoteKind)
	full, is := made.(client.Object)
	if err != nil || !is {
		return remote, err
	}
	switch err := c.Get(mapping.ctx, key, full); {
	case apierrors.IsNotFound(err):
		return remote, nil // the event of its deletion requeues the object
	case err != nil:
		return nil, fmt.Errorf("read %s %s in the remote cluster: %w", r.kind.name, key, err)
	case full.GetUID() != remote.UID:
		return nil, errNotSynced // it has been replaced by another object
	}
	return full, nil
}
