// SPDX-License-Identifier: Apache-2.0

package checked

import (
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/quantities"
)

// checkedKinds returns the kinds of a scheme that have no quantities, and the checked types. Any other kind is unknown to its decoders, which then fail.
func checkedKinds(scheme *runtime.Scheme) (*runtime.Scheme, error) {
	kinds := runtime.NewScheme()
	for _, version := range scheme.PrioritizedVersionsAllGroups() {
		metav1.AddToGroupVersion(kinds, version)
	}
	for kind, item := range scheme.AllKnownTypes() {
		if kinds.Recognizes(kind) || quantities.In(item) {
			continue
		}
		object, ok := reflect.New(item).Interface().(runtime.Object)
		if !ok {
			return nil, fmt.Errorf("%v of the scheme is not an object", item)
		}
		kinds.AddKnownTypeWithName(kind, object)
	}
	for kind, object := range map[string]client.Object{"Pod": &checkedPod{}, "PersistentVolumeClaim": &checkedClaim{}} {
		kinds.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind(kind), object)
	}
	for kind, list := range map[string]client.ObjectList{"PodList": &checkedPods{}, "PersistentVolumeClaimList": &checkedClaims{}} {
		kinds.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind(kind), list)
	}
	kinds.AddKnownTypeWithName(vkv1alpha1.GroupVersion.WithKind("ShadowPod"), &checkedShadowPod{})
	kinds.AddKnownTypeWithName(vkv1alpha1.GroupVersion.WithKind("ShadowPodList"), &checkedShadowPods{})
	return kinds, nil
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
	p.Pod = corev1.Pod{TypeMeta: parts.TypeMeta, ObjectMeta: parts.Metadata}
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

var (
	podStatusWire = quantities.WireOf[corev1.PodStatus]()
	claimWire     = quantities.WireOf[corev1.PersistentVolumeClaim]()
)

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

type checkedClaim struct{ corev1.PersistentVolumeClaim }

// UnmarshalJSON decodes the claim after the check.
func (c *checkedClaim) UnmarshalJSON(text []byte) error {
	if err := quantities.CheckJSON(text); err != nil {
		return fmt.Errorf("a claim of the remote cluster: %w", err)
	}
	c.PersistentVolumeClaim = corev1.PersistentVolumeClaim{}
	return utiljson.Unmarshal(text, &c.PersistentVolumeClaim)
}

// Unmarshal decodes the protocol buffer of the claim after the check.
func (c *checkedClaim) Unmarshal(message []byte) error {
	if err := claimWire.Check(message); err != nil {
		return fmt.Errorf("a claim of the remote cluster: %w", err)
	}
	return c.PersistentVolumeClaim.Unmarshal(message)
}

// DeepCopyObject implements runtime.Object.
func (c *checkedClaim) DeepCopyObject() runtime.Object { return &checkedClaim{*c.DeepCopy()} }

type checkedShadowPod struct{ vkv1alpha1.ShadowPod }

// UnmarshalJSON decodes the ShadowPod after the check.
func (p *checkedShadowPod) UnmarshalJSON(text []byte) error {
	if err := quantities.CheckJSON(text); err != nil {
		return fmt.Errorf("a ShadowPod of the remote cluster: %w", err)
	}
	p.ShadowPod = vkv1alpha1.ShadowPod{}
	return utiljson.Unmarshal(text, &p.ShadowPod)
}

// DeepCopyObject implements runtime.Object.
func (p *checkedShadowPod) DeepCopyObject() runtime.Object { return &checkedShadowPod{*p.DeepCopy()} }

type (
	checkedPods       = checkedList[checkedPod, *checkedPod]
	checkedClaims     = checkedList[checkedClaim, *checkedClaim]
	checkedShadowPods = checkedList[checkedShadowPod, *checkedShadowPod]
)

// checkedList is a list of checked objects.
type checkedList[T any, P interface {
	*T
	client.Object
}] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// Reset empties the list, as decoders of protocol buffers ask.
func (l *checkedList[T, P]) Reset() { *l = checkedList[T, P]{} }

// Unmarshal decodes the protocol buffer of the list, each object after the check.
func (l *checkedList[T, P]) Unmarshal(message []byte) error {
	return quantities.Fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case listMetadata:
			return l.ListMeta.Unmarshal(value)
		case listItems:
			l.Items = append(l.Items, *new(T))
			item, ok := any(&l.Items[len(l.Items)-1]).(interface{ Unmarshal([]byte) error })
			if !ok {
				return fmt.Errorf("%T has no protocol buffer", *new(T))
			}
			return item.Unmarshal(value)
		}
		return nil
	})
}

// DeepCopyObject implements runtime.Object.
func (l *checkedList[T, P]) DeepCopyObject() runtime.Object {
	copied := &checkedList[T, P]{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		if item, ok := P(&l.Items[i]).DeepCopyObject().(P); ok {
			copied.Items = append(copied.Items, *item)
		}
	}
	return copied
}
