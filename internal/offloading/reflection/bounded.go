// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// boundedClient reads the pods and ShadowPods of the peer, whose quantities it checks before they are parsed: the peer is hostile, and one quantity may take
// hours. All other calls go to the usual client, since the other kinds have no quantities.
type boundedClient struct {
	client.WithWatch
	checked client.WithWatch
}

// newBoundedClient makes both clients. They use the same HTTP client.
func newBoundedClient(config *rest.Config, shared *http.Client, scheme *runtime.Scheme, mapper meta.RESTMapper) (client.WithWatch, error) {
	usual, err := client.NewWithWatch(config, client.Options{HTTPClient: shared, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // the check reads JSON only
	kinds := runtime.NewScheme()
	metav1.AddToGroupVersion(kinds, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(kinds, vkv1alpha1.GroupVersion)
	kinds.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("Pod"), &checkedPod{})
	kinds.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("PodList"), &checkedPods{})
	kinds.AddKnownTypeWithName(shadowPod, &checkedShadowPod{})
	kinds.AddKnownTypeWithName(vkv1alpha1.GroupVersion.WithKind("ShadowPodList"), &checkedShadowPods{})
	checked, err := client.NewWithWatch(config, client.Options{HTTPClient: shared, Scheme: kinds, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return &boundedClient{WithWatch: usual, checked: checked}, nil
}

// Get implements client.Reader.
func (c *boundedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
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
func (c *boundedClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
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
func (c *boundedClient) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
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
	if err := project.CheckQuantities(parts.Status); err != nil {
		return fmt.Errorf("status of pod %.253q of the remote cluster: %w", p.Name, err)
	}
	return utiljson.Unmarshal(parts.Status, &p.Status)
}

// DeepCopyObject implements runtime.Object.
func (p *checkedPod) DeepCopyObject() runtime.Object { return &checkedPod{*p.DeepCopy()} }

type checkedPods struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []checkedPod `json:"items"`
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
	if err := project.CheckQuantities(text); err != nil {
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
