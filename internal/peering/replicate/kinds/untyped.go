// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Objects of a provider are read untyped, checked, and only then decoded into Go types: parsing a quantity can take as
// long as the provider wants.

// gvk of the kind.
func (k Kind) gvk(scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(k.Object(), scheme)
}

// Untyped is an empty object of the kind.
func (k Kind) Untyped(scheme *runtime.Scheme) (*unstructured.Unstructured, error) {
	gvk, err := k.gvk(scheme)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	return object, nil
}

// UntypedList is an empty list of the kind.
func (k Kind) UntypedList(scheme *runtime.Scheme) (*unstructured.UnstructuredList, error) {
	gvk, err := k.gvk(scheme)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return list, nil
}

// Read reads, checks and decodes the provider's object.
func (k Kind) Read(ctx context.Context, reader client.Reader, scheme *runtime.Scheme, name client.ObjectKey) (client.Object, error) {
	untyped, err := k.Untyped(scheme)
	if err != nil {
		return nil, err
	}
	if err := reader.Get(ctx, name, untyped); err != nil {
		return nil, err
	}
	if err := k.check(untyped.Object); err != nil {
		return nil, fmt.Errorf("the provider's %s %s is not valid: %w", k.Name, name.Name, err)
	}
	typed := k.Object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(untyped.Object, typed); err != nil {
		return nil, fmt.Errorf("the provider's %s %s cannot be decoded: %w", k.Name, name.Name, err)
	}
	return typed, nil
}
