// SPDX-License-Identifier: Apache-2.0

// Package await follows objects until they are as they should be, and repeats requests that may succeed later: API servers restart,
// and networks break. It must not know what it waits for. Its proof are await_test.go, and follow_test.go of package apiserver.
package await

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
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// relistAfter bounds the trust in a silent watch: a dead connection can look like an idle one.
	relistAfter = 5 * time.Second
	// CallTimeout bounds one request.
	CallTimeout = 10 * time.Second

	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// object is a pointer to T that is a Kubernetes object.
type object[T any] interface {
	*T
	client.Object
}

// Follow calls observe with all objects that options select, at first and after each change (and sometimes without one), until
// observe returns true or an error, or ctx ends. It retries failed requests, because API servers and networks recover, unless the
// API server refuses them permanently. When ctx ends, the error wraps that of ctx and the last failed request.
func Follow[T any, P object[T]](ctx context.Context, c client.WithWatch, list client.ObjectList, observe func([]T) (bool, error),
	options ...client.ListOption,
) error {
	var retries backoff
	for {
		done, err := followOnce[T, P](ctx, c, list, observe, options)
		var refused *observerError
		switch {
		case done:
			return nil
		case errors.As(err, &refused):
			return refused.error
		case err == nil && ctx.Err() == nil: // the watch ran out
			retries = backoff{}
		default:
			if err := retries.wait(ctx, err); err != nil {
				return err
			}
		}
	}
}

// UntilGone calls seen with each state of an object, as Follow does, until it is gone or its name belongs to another one.
func UntilGone[T any, P object[T]](ctx context.Context, c client.WithWatch, list client.ObjectList, it P, seen func(P)) error {
	uid := it.GetUID() // seen may keep the state in it
	return Follow[T, P](ctx, c, list, func(all []T) (bool, error) {
		if len(all) == 0 || P(&all[0]).GetUID() != uid {
			return true, nil
		}
		seen(&all[0])
		return false, nil
	}, client.InNamespace(it.GetNamespace()), client.MatchingFields{"metadata.name": it.GetName()})
}

// observerError wraps an error of the caller's function: Follow returns it instead of retrying.
type observerError struct{ error }

func followOnce[T any, P object[T]](ctx context.Context, c client.WithWatch, list client.ObjectList, observe func([]T) (bool, error),
	options []client.ListOption,
) (bool, error) {
	items, version, err := listAll[T](ctx, c, list, options)
	if err != nil {
		return false, err
	}
	if done, err := observe(items); err != nil {
		return false, &observerError{err}
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
				return false, nil // the version is too old, or the server shuts down: list again
			}
			items = merge[T, P](items, next, event.Type == watch.Deleted)
			if done, err := observe(items); err != nil {
				return false, &observerError{err}
			} else if done {
				return true, nil
			}
		}
	}
}

func listAll[T any](ctx context.Context, c client.Reader, list client.ObjectList, options []client.ListOption) (items []T, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
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

// Retry calls do until it succeeds, fails permanently, or ctx ends: API servers and their webhooks restart.
func Retry(ctx context.Context, do func(ctx context.Context) error) error {
	var retries backoff
	for {
		call, cancel := context.WithTimeout(ctx, CallTimeout)
		err := do(call)
		cancel()
		if err == nil {
			return nil
		}
		if err := retries.wait(ctx, err); err != nil {
			return err
		}
	}
}

// backoff decides after a failed attempt whether to make another one, and delays it.
type backoff struct {
	last     error
	pause    time.Duration
	refusals int
	loading  int
}

// maxRefusals and maxLoading are the numbers of such answers that make one permanent. An API server that has just started refuses valid
// requests until it has loaded its roles, and serves no custom resources until it has loaded their definitions.
const maxRefusals, maxLoading = 6, 14

// wait delays the next attempt. If there must be none, it returns the reason.
func (b *backoff) wait(ctx context.Context, err error) error {
	loading := errors.As(err, new(*apiutil.ErrResourceDiscoveryFailed)) // the group is listed, and nothing in it
	switch {
	case loading:
		b.loading++
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		b.refusals++
	}
	if b.refusals >= maxRefusals || b.loading >= maxLoading || permanent(err) && !loading {
		return err
	}
	if ctx.Err() == nil {
		b.last = err
	}
	b.pause = min(max(2*b.pause, retryFirst), retryMost)
	timer := time.NewTimer(b.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		if b.last != nil {
			return fmt.Errorf("%w; the last request failed: %w", ctx.Err(), b.last)
		}
		return ctx.Err()
	}
}

// permanent reports whether a retry is useless: the API server understood the request and will answer the same again.
func permanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || runtime.IsNotRegisteredError(err)
}

// SameObject is the precondition of a delete: it must hit the object that was read, not a successor of the same name.
func SameObject(uid types.UID) client.DeleteOption {
	return client.Preconditions{UID: &uid}
}
