// SPDX-License-Identifier: Apache-2.0

package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Page is the operator's kind: a text that is kept in a ConfigMap, with as many copies of a server as it wants.
type Page struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PageSpec   `json:"spec"`
	Status PageStatus `json:"status,omitempty"`
}

// PageSpec is what a user wants.
type PageSpec struct {
	Text string `json:"text"`
	// Replicas is set by the mutating webhook if the user leaves it out.
	Replicas *int32 `json:"replicas,omitempty"`
}

// PageStatus is what the operator made of it.
type PageStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ReconciledBy is the pod of the operator that reconciled last.
	ReconciledBy string `json:"reconciledBy,omitempty"`
}

// PageList is what a list of pages is.
type PageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Page `json:"items"`
}

// What the mutating webhook and the reconciler write.
const (
	defaultedBy  = "pages.example.com/defaulted-by" // annotation: the pod that answered the mutating webhook
	mostReplicas = 5
	available    = "Available"
)

var groupVersion = schema.GroupVersion{Group: "pages.example.com", Version: "v1"}

func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Page{}, &PageList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

// DeepCopyObject makes a Page an object of the API.
func (p *Page) DeepCopyObject() runtime.Object {
	copied := *p
	p.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	if p.Spec.Replicas != nil {
		replicas := *p.Spec.Replicas
		copied.Spec.Replicas = &replicas
	}
	copied.Status.Conditions = nil
	for _, condition := range p.Status.Conditions {
		copied.Status.Conditions = append(copied.Status.Conditions, *condition.DeepCopy())
	}
	return &copied
}

// DeepCopyObject makes a PageList an object of the API.
func (l *PageList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = nil
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*Page))
	}
	return &copied
}
