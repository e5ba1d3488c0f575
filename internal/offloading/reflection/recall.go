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

// pageSize of the one list of whole objects that a restart costs.
const pageSize = 200

// recall shows all objects of ours in a twin to one, page by page, and again, for a while, what that could not decide yet. The others are not to
// wait for it longer. Nothing is asked if there are none.
func (f *farSide) recall(pair *pair, known *fanin.Source, list func() client.ObjectList, one func(client.Object) error) error {
	if !slices.ContainsFunc(known.All(pair.link.Remote), func(object client.Object) bool { return pair.link.Reflected(object) }) {
		return nil
	}
	var left []client.Object
	show := func(object client.Object) {
		if err := one(object); err != nil && !errors.Is(err, project.ErrRefused) {
			left = append(left, object)
		}
	}
	read, since := false, time.Time{}
	for wait := firstBackoff; ; wait = min(2*wait, 5*time.Second) {
		if !read {
			left = nil
			err := f.pages(pair, list, show)
			if read = err == nil; !read {
				log.FromContext(pair.ctx).V(1).Info("objects of the twin not read", "reason", err.Error())
			}
		} else {
			again := left
			left = nil
			for _, object := range again {
				show(object)
			}
		}
		switch {
		case read && len(left) == 0:
			return nil
		case read && since.IsZero():
			since = time.Now()
		case read && time.Since(since) > soon:
			return nil
		}
		select {
		case <-pair.ctx.Done():
			return pair.ctx.Err()
		case <-time.After(wait):
		}
	}
}

// pages reads all of it. What is too much for one answer, or for the time that one may take, is asked for in smaller parts.
func (f *farSide) pages(pair *pair, list func() client.ObjectList, show func(client.Object)) error {
	ours := client.MatchingLabels{labels.Origin: pair.link.LocalID, labels.Destination: pair.link.RemoteID}
	limit := int64(pageSize)
	for next := ""; ; {
		c, err := f.wait(pair.ctx)
		if err != nil {
			return err
		}
		page := list()
		if err := c.List(pair.ctx, page, client.InNamespace(pair.link.Remote), ours, client.Limit(limit), client.Continue(next)); err != nil {
			if limit == 1 || pair.ctx.Err() != nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				return err
			}
			limit = max(limit/4, 1)
			continue
		}
		err = meta.EachListItem(page, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				show(object)
			}
			return nil
		})
		if next = page.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}

// whole is the remote object as it is compared: its metadata, if it is known what was written there, or all of it.
func (r *reflector) whole(pair *pair, remote *metav1.PartialObjectMetadata) (client.Object, error) {
	if remote == nil {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(remote)
	if pair.appliers[r.kind.name].Remembers(r.kind.there, key) {
		return remote, nil
	}
	c, err := r.engine.remote.now()
	if err != nil {
		return nil, err
	}
	made, err := r.engine.remote.scheme.New(r.kind.there)
	full, is := made.(client.Object)
	if err != nil || !is {
		return remote, err
	}
	switch err := c.Get(pair.ctx, key, full); {
	case apierrors.IsNotFound(err):
		return remote, nil // its end wakes us
	case err != nil:
		return nil, fmt.Errorf("read %s %s in the remote cluster: %w", r.kind.name, key, err)
	case full.GetUID() != remote.UID:
		return nil, errNotSynced // another one has taken its place
	}
	return full, nil
}
