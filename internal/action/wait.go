// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// relistAfter bounds the trust in a silent watch: a connection can be dead without anybody saying so.
	relistAfter = 5 * time.Second
	// callTimeout bounds one request.
	callTimeout = 10 * time.Second

	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// object is a pointer to T that is a Kubernetes object.
type object[T any] interface {
	*T
	client.Object
}

// Follow calls see with all objects that options select, at first and after each change, until see
// says that it is done or fails. Only those two and the end of ctx end it: API servers come back,
// so what they or the network in between get wrong is tried again. see is also called now and then
// without a change. On the end of ctx, the error is that of ctx and tells the last failed request.
func Follow[T any, P object[T]](ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]T) (bool, error), options ...client.ListOption) error {
	var tries backoff
	for {
		done, err := followOnce[T, P](ctx, c, list, see, options)
		var refused *seen
		switch {
		case done:
			return nil
		case errors.As(err, &refused):
			return refused.error
		case err == nil && ctx.Err() == nil: // the watch ran out
			tries = backoff{}
		default:
			if err := tries.after(ctx, err); err != nil {
				return err
			}
		}
	}
}

// seen marks an error of the caller's function, which ends the loop.
type seen struct{ error }

func followOnce[T any, P object[T]](ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]T) (bool, error), options []client.ListOption) (bool, error) {
	items, version, err := listAll[T](ctx, c, list, options)
	if err != nil {
		return false, err
	}
	if done, err := see(items); err != nil {
		return false, &seen{err}
	} else if done {
		return true, nil
	}

	ctx, cancel := context.WithTimeout(ctx, relistAfter)
	defer cancel()
	watcher, err := c.Watch(ctx, list, append(slices.Clone(options), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
	if err != nil {
		if ctx.Err() != nil {
			return false, nil
		}
		return false, err
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case event, open := <-watcher.ResultChan():
			if !open {
				return false, nil
			}
			next, ok := event.Object.(P)
			if !ok || event.Type == watch.Error || event.Type == watch.Bookmark {
				return false, nil // too old, or the server ends: list again
			}
			items = merge[T, P](items, next, event.Type == watch.Deleted)
			if done, err := see(items); err != nil {
				return false, &seen{err}
			} else if done {
				return true, nil
			}
		}
	}
}

func listAll[T any](ctx context.Context, c client.Reader, list client.ObjectList, options []client.ListOption) (items []T, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list = list.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, list, options...); err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		value, ok := any(item).(*T)
		if !ok {
			return fmt.Errorf("%T in a %T", item, list)
		}
		items = append(items, *value)
		return nil
	})
	return items, list.GetResourceVersion(), err
}

func merge[T any, P object[T]](items []T, next P, deleted bool) []T {
	kept := items[:0:0]
	for i := range items {
		if P(&items[i]).GetUID() != next.GetUID() {
			kept = append(kept, items[i])
		}
	}
	if !deleted {
		kept = append(kept, *next)
	}
	return kept
}

// retry calls do until it succeeds, fails for good, or ctx ends. API servers restart, and so do the
// webhooks that stand in their way.
func retry(ctx context.Context, do func(ctx context.Context) error) error {
	var tries backoff
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := do(call)
		cancel()
		if err == nil {
			return nil
		}
		if err := tries.after(ctx, err); err != nil {
			return err
		}
	}
}

// backoff decides, after a failed try, whether there is another one.
type backoff struct {
	last     error
	pause    time.Duration
	refusals int
}

// maxRefusals is how often we are refused before we believe it: an API server that has just started
// does not know its roles yet.
const maxRefusals = 6

// after waits before the next try, or returns why there is none.
func (p *backoff) after(ctx context.Context, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		p.refusals++
	}
	if p.refusals >= maxRefusals || permanent(err) {
		return err
	}
	if ctx.Err() == nil {
		p.last = err
	}
	p.pause = min(max(2*p.pause, retryFirst), retryMost)
	timer := time.NewTimer(p.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		if p.last != nil {
			return fmt.Errorf("%w; the last request failed: %w", ctx.Err(), p.last)
		}
		return ctx.Err()
	}
}

// permanent says whether trying again is useless: the API server understood, and will not change its mind.
func permanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || runtime.IsNotRegisteredError(err)
}

// sameObject is the precondition of a delete: exactly the object that was looked at.
func sameObject(uid types.UID) client.DeleteOption {
	return client.Preconditions{UID: &uid}
}
