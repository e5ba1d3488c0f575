// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
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
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

const (
	// pageSize is that of the one list of whole objects that a restart costs.
	pageSize = 200
	// firstWait is how long to wait before the second attempt; each further one waits twice as long, up to lastWait.
	firstWait, lastWait = 50 * time.Millisecond, 5 * time.Second
)

// Visit lists our objects in the remote namespace page by page and calls visit for each. It calls visit again for objects that visit could not
// decide (an error other than ErrRefused), for up to podplan.SettleTimeout: the other objects do not wait longer for them. If known shows that there are none
// of ours, it sends no request. An error means that the mapping has ended.
func (e *Engine) Visit(mapping *Mapping, known *fanin.Source, list func() client.ObjectList, visit func(client.Object) error) error {
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
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if !read {
			undecided = nil
			err := e.listPages(mapping, list, try)
			if read = err == nil; !read {
				log.FromContext(mapping.Context).V(1).Info("could not list the remote namespace", "reason", err.Error())
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
		case read && time.Since(since) > podplan.SettleTimeout:
			return nil
		}
		select {
		case <-mapping.Context.Done():
			return mapping.Context.Err()
		case <-time.After(wait):
		}
	}
}

// listPages calls visit for all our objects in the remote namespace. If a page is too large for one answer, or for the time that an answer may take, it
// asks for smaller pages.
func (e *Engine) listPages(mapping *Mapping, list func() client.ObjectList, visit func(client.Object)) error {
	ours := client.MatchingLabels{labels.Origin: mapping.LocalID, labels.Destination: mapping.RemoteID}
	limit := int64(pageSize)
	for next := ""; ; {
		c, err := e.Remote.WaitForClient(mapping.Context)
		if err != nil {
			return err
		}
		page := list()
		if err := c.List(mapping.Context, page, client.InNamespace(mapping.Remote), ours, client.Limit(limit), client.Continue(next)); err != nil {
			if limit == 1 || mapping.Context.Err() != nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
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
