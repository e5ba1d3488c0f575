// SPDX-License-Identifier: Apache-2.0

// Package checked reads pods and ShadowPods from an API server that is not trusted.
package checked

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/quantities"
)

// checkedClient reads the pods and ShadowPods of the peer, whose quantities it checks before they are parsed, in whatever encoding the peer answers: it is
// hostile, and one quantity may take hours. All other calls go to the usual client, which checks nothing: the quantities of a claim that is read, and of what
// a write is answered with, are still believed.
type checkedClient struct {
	client.WithWatch
	checked client.WithWatch
}

// NewClient returns a client of the peer that config and the HTTP client connect to. It leaves out the specs of pods, which we never read.
func NewClient(config *rest.Config, shared *http.Client, scheme *runtime.Scheme, mapper meta.RESTMapper) (client.WithWatch, error) {
	usual, err := client.NewWithWatch(config, client.Options{HTTPClient: shared, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	kinds := runtime.NewScheme()
	metav1.AddToGroupVersion(kinds, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(kinds, vkv1alpha1.GroupVersion)
	kinds.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("Pod"), &checkedPod{})
	kinds.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("PodList"), &checkedPods{})
	kinds.AddKnownTypeWithName(vkv1alpha1.GroupVersion.WithKind("ShadowPod"), &checkedShadowPod{})
	kinds.AddKnownTypeWithName(vkv1alpha1.GroupVersion.WithKind("ShadowPodList"), &checkedShadowPods{})
	checked, err := client.NewWithWatch(config, client.Options{HTTPClient: shared, Scheme: kinds, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return &checkedClient{WithWatch: usual, checked: checked}, nil
}

// Get implements client.Reader.
func (c *checkedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch into := object.(type) {
	case *corev1.Pod:
		var checked checkedPod
		err := c.checked.Get(ctx, key, &checked, options...)
		*into = checked.Pod
		return err
	case *vkv1alpha1.ShadowPod:
		var checked checkedShadowPod
		err := c.checked.Get(ctx, key, &checked, options...)
		*into = checked.ShadowPod
		return err
	}
	return c.WithWatch.Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (c *checkedClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	switch into := list.(type) {
	case *corev1.PodList:
		var checked checkedPods
		err := c.checked.List(ctx, &checked, options...)
		into.ListMeta, into.Items = checked.ListMeta, make([]corev1.Pod, len(checked.Items))
		for i := range checked.Items {
			into.Items[i] = checked.Items[i].Pod
		}
		return err
	case *vkv1alpha1.ShadowPodList:
		var checked checkedShadowPods
		err := c.checked.List(ctx, &checked, options...)
		into.ListMeta, into.Items = checked.ListMeta, make([]vkv1alpha1.ShadowPod, len(checked.Items))
		for i := range checked.Items {
			into.Items[i] = checked.Items[i].ShadowPod
		}
		return err
	}
	return c.WithWatch.List(ctx, list, options...)
}

// Watch implements client.WithWatch.
func (c *checkedClient) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var checked client.ObjectList
	switch list.(type) {
	case *corev1.PodList:
		checked = &checkedPods{}
	case *vkv1alpha1.ShadowPodList:
		checked = &checkedShadowPods{}
	default:
		return c.WithWatch.Watch(ctx, list, options...)
	}
	events, err := c.checked.Watch(ctx, checked, options...)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		switch object := event.Object.(type) {
		case *checkedPod:
			event.Object = &object.Pod
		case *checkedShadowPod:
			event.Object = &object.ShadowPod
		}
		return event, true
	}), nil
}

// checkedPod is a pod without its spec, which we never read.
type checkedPod struct{ corev1.Pod }

// UnmarshalJSON decodes the pod after the check.
func (p *checkedPod) UnmarshalJSON(text []byte) error {
	var parts struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Status          json.RawMessage   `json:"status"`
	}
	if err := utiljson.Unmarshal(text, &parts); err != nil {
		return err
	}
	p.TypeMeta, p.ObjectMeta = parts.TypeMeta, parts.Metadata
	if len(parts.Status) == 0 {
		return nil
	}
	if err := quantities.CheckJSON(parts.Status); err != nil {
		return fmt.Errorf("status of pod %.253q of the remote cluster: %w", p.Name, err)
	}
	return utiljson.Unmarshal(parts.Status, &p.Status)
}

// The numbers of fields in the protocol buffers of a pod and of a list.
const podMetadata, podStatus, listMetadata, listItems = 1, 3, 1, 2

var podStatusWire = quantities.WireOf[corev1.PodStatus]()

// Unmarshal decodes the protocol buffer of the pod after the check.
func (p *checkedPod) Unmarshal(message []byte) error {
	return quantities.Fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case podMetadata:
			return p.ObjectMeta.Unmarshal(value)
		case podStatus:
			if err := podStatusWire.Check(value); err != nil {
				return fmt.Errorf("status of pod %.253q of the remote cluster: %w", p.Name, err)
			}
			return p.Status.Unmarshal(value)
		}
		return nil
	})
}

// DeepCopyObject implements runtime.Object.
func (p *checkedPod) DeepCopyObject() runtime.Object { return &checkedPod{*p.DeepCopy()} }

type checkedPods struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []checkedPod `json:"items"`
}

// Reset empties the list, as decoders of protocol buffers ask.
func (l *checkedPods) Reset() { *l = checkedPods{} }

// Unmarshal decodes the protocol buffer of the list, each pod after the check.
func (l *checkedPods) Unmarshal(message []byte) error {
	return quantities.Fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case listMetadata:
			return l.ListMeta.Unmarshal(value)
		case listItems:
			l.Items = append(l.Items, checkedPod{})
			return l.Items[len(l.Items)-1].Unmarshal(value)
		}
		return nil
	})
}

// DeepCopyObject implements runtime.Object.
func (l *checkedPods) DeepCopyObject() runtime.Object {
	copied := &checkedPods{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, checkedPod{*l.Items[i].DeepCopy()})
	}
	return copied
}

type checkedShadowPod struct{ vkv1alpha1.ShadowPod }

// UnmarshalJSON decodes the ShadowPod after the check.
func (p *checkedShadowPod) UnmarshalJSON(text []byte) error {
	if err := quantities.CheckJSON(text); err != nil {
		return fmt.Errorf("a ShadowPod of the remote cluster: %w", err)
	}
	return utiljson.Unmarshal(text, &p.ShadowPod)
}

// DeepCopyObject implements runtime.Object.
func (p *checkedShadowPod) DeepCopyObject() runtime.Object { return &checkedShadowPod{*p.DeepCopy()} }

type checkedShadowPods struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []checkedShadowPod `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *checkedShadowPods) DeepCopyObject() runtime.Object {
	copied := &checkedShadowPods{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		copied.Items = append(copied.Items, checkedShadowPod{*l.Items[i].DeepCopy()})
	}
	return copied
}
