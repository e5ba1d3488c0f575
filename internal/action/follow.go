// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow calls see with all objects that options select, at first, after each change, and every few seconds, until see says that
// it is done or fails. What goes wrong on the way to the API server is tried again, until ctx ends.
func Follow[T any, P object[T]](ctx context.Context, c client.WithWatch, list client.ObjectList, see func([]T) (bool, error), options ...client.ListOption) error {
	return follow[T, P](ctx, c, list, see, options...)
}
