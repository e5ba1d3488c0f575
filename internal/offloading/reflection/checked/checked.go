// SPDX-License-Identifier: Apache-2.0

// Package checked reads and writes objects of an API server that is not trusted: no answer of it makes us parse a quantity unchecked, in whatever encoding it
// comes, because one quantity may take hours.
//
//	checked.go  the client
//	kinds.go    the kinds that it knows: those with quantities, and those without
package checked

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// checkedClient decodes with a scheme that has no type with quantities but the checked ones: a decoder creates whatever kind an answer names, also where we
// asked for another one, and in the body of an error.
type checkedClient struct {
	client.WithWatch
	scheme *runtime.Scheme
}

// NewClient returns a client of the peer that config and the HTTP client connect to. The kinds that have quantities and that it knows are pods, ShadowPods and
// claims. It leaves out the specs of pods, which we never read.
func NewClient(config *rest.Config, shared *http.Client, scheme *runtime.Scheme, mapper meta.RESTMapper) (client.WithWatch, error) {
	kinds, err := checkedKinds(scheme)
	if err != nil {
		return nil, err
	}
	made, err := client.NewWithWatch(config, client.Options{HTTPClient: shared, Scheme: kinds, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return &checkedClient{WithWatch: made, scheme: scheme}, nil
}

// Scheme implements client.Client. It has the usual types, which this client takes and returns.
func (c *checkedClient) Scheme() *runtime.Scheme { return c.scheme }

// Get implements client.Reader.
func (c *checkedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	checked, answer := checkedObject(object)
	err := c.WithWatch.Get(ctx, key, checked, options...)
	answer()
	return err
}

// Create implements client.Writer.
func (c *checkedClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	checked, answer := checkedObject(object)
	err := c.WithWatch.Create(ctx, checked, options...)
	answer()
	return err
}

// Update implements client.Writer.
func (c *checkedClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	checked, answer := checkedObject(object)
	err := c.WithWatch.Update(ctx, checked, options...)
	answer()
	return err
}

// Patch implements client.Writer.
func (c *checkedClient) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	checked, answer := checkedObject(object)
	err := c.WithWatch.Patch(ctx, checked, patch, options...)
	answer()
	return err
}

// Delete implements client.Writer.
func (c *checkedClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	checked, _ := checkedObject(object)
	return c.WithWatch.Delete(ctx, checked, options...)
}

// Apply implements client.Writer. The usual client decodes the answer into what it was given; this one does not change an intent of a Go type.
func (c *checkedClient) Apply(ctx context.Context, intent runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if _, untyped := intent.(runtime.Unstructured); untyped {
		return c.WithWatch.Apply(ctx, intent, options...)
	}
	text, err := json.Marshal(intent)
	if err != nil {
		return fmt.Errorf("encode the intent: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return fmt.Errorf("an intent needs apiVersion, kind and name: %w", err)
	}
	return c.WithWatch.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...)
}

// List implements client.Reader.
func (c *checkedClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	checked, answer := checkedListOf(list)
	err := c.WithWatch.List(ctx, checked, options...)
	answer()
	return err
}

// Watch implements client.WithWatch.
func (c *checkedClient) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	checked, _ := checkedListOf(list)
	events, err := c.WithWatch.Watch(ctx, checked, options...)
	if err != nil || checked == list {
		return events, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		switch object := event.Object.(type) {
		case *checkedPod:
			event.Object = &object.Pod
		case *checkedShadowPod:
			event.Object = &object.ShadowPod
		case *checkedClaim:
			event.Object = &object.PersistentVolumeClaim
		}
		return event, true
	}), nil
}

// checkedObject returns what to decode an answer into, and a function that moves the answer into the object. Without quantities, that is the object itself.
func checkedObject(object client.Object) (checked client.Object, answer func()) {
	switch into := object.(type) {
	case *corev1.Pod:
		bounded := &checkedPod{*into}
		return bounded, func() { *into = bounded.Pod }
	case *vkv1alpha1.ShadowPod:
		bounded := &checkedShadowPod{*into}
		return bounded, func() { *into = bounded.ShadowPod }
	case *corev1.PersistentVolumeClaim:
		bounded := &checkedClaim{*into}
		return bounded, func() { *into = bounded.PersistentVolumeClaim }
	}
	return object, func() {}
}

// checkedListOf is checkedObject for lists.
func checkedListOf(list client.ObjectList) (checked client.ObjectList, answer func()) {
	switch into := list.(type) {
	case *corev1.PodList:
		all := &checkedPods{}
		return all, func() {
			into.ListMeta, into.Items = all.ListMeta, make([]corev1.Pod, len(all.Items))
			for i := range all.Items {
				into.Items[i] = all.Items[i].Pod
			}
		}
	case *vkv1alpha1.ShadowPodList:
		all := &checkedShadowPods{}
		return all, func() {
			into.ListMeta, into.Items = all.ListMeta, make([]vkv1alpha1.ShadowPod, len(all.Items))
			for i := range all.Items {
				into.Items[i] = all.Items[i].ShadowPod
			}
		}
	case *corev1.PersistentVolumeClaimList:
		all := &checkedClaims{}
		return all, func() {
			into.ListMeta, into.Items = all.ListMeta, make([]corev1.PersistentVolumeClaim, len(all.Items))
			for i := range all.Items {
				into.Items[i] = all.Items[i].PersistentVolumeClaim
			}
		}
	}
	return list, func() {}
}
