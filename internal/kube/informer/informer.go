// SPDX-License-Identifier: Apache-2.0

// Package informer shows a reader of a cache each object that comes, changes and goes. It must not know what the objects are for. Its proof is
// informer_test.go.
package informer

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow calls set for each object of a kind that a cache gets or sees change, and forget for each that is gone. It does not wait for the first list;
// what it returns is true once set was called for all that there were.
func Follow(ctx context.Context, from cache.Informers, kind client.Object, set, forget func(any)) (toolscache.InformerSynced, error) {
	informer, err := from.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) { forget(Object(object)) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// Object is the object of an event: the last one that was seen, if its end was missed.
func Object(event any) any {
	if missed, ok := event.(toolscache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return event
}
