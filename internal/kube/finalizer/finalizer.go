// SPDX-License-Identifier: Apache-2.0

// Package finalizer adds and removes finalizers without a conflict with other clients.
//
// It must not know whose finalizers they are. The tests of the controllers that use it prove it against real API servers.
package finalizer

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch adds or removes a finalizer. It returns false if another client wrote first; the event of that write follows.
func Patch(ctx context.Context, c client.Client, object client.Object, finalizer string, change func(client.Object, string) bool) (bool, error) {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !change(object, finalizer) {
		return true, nil
	}
	err := c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		kind := cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, fmt.Sprintf("%T", object))
		return false, fmt.Errorf("finalizer of %s %s/%s: %w", kind, object.GetNamespace(), object.GetName(), err)
	}
	return true, nil
}
