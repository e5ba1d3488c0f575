// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWebhooks(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	for name, test := range map[string]struct {
		replicas *int32
		want     int32
		refused  string
	}{
		"none":     {nil, 1, ""},
		"zero":     {number(0), 0, ""},
		"most":     {number(5), 5, ""},
		"too many": {number(6), 6, "6 replicas are not between 0 and 5, by pod-a"},
		"negative": {number(-1), -1, "-1 replicas are not between 0 and 5, by pod-a"},
	} {
		t.Run(name, func(t *testing.T) {
			page := &Page{Spec: PageSpec{Replicas: test.replicas}}
			if err := (defaulter{"pod-a"}).Default(t.Context(), page); err != nil || *page.Spec.Replicas != test.want || page.Annotations[defaultedBy] != "pod-a" {
				t.Errorf("defaulted to %+v, %v", page, err)
			}
			_, created := (validator{"pod-a"}).ValidateCreate(t.Context(), page)
			_, updated := (validator{"pod-a"}).ValidateUpdate(t.Context(), &Page{}, page)
			for _, err := range []error{created, updated} {
				if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
					t.Errorf("refused with %v, want %q", err, test.refused)
				}
			}
		})
	}
}

// TestServe: what the API server added to a Deployment stays, so that a second round changes nothing.
func TestServe(t *testing.T) {
	one := int32(1)
	var server appsv1.Deployment
	serve(&server, "a", &one)
	server.Spec.Template.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	before := server.DeepCopy()
	serve(&server, "a", &one)
	if !reflect.DeepEqual(before, &server) {
		t.Errorf("a second time it is %+v, was %+v", server, before)
	}
}

func TestDeepCopy(t *testing.T) {
	one := int32(1)
	list := &PageList{Items: []Page{{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}}, Spec: PageSpec{Text: "t", Replicas: &one},
		Status: PageStatus{ReconciledBy: "p", Conditions: []metav1.Condition{{Type: available}}},
	}}}
	copied := list.DeepCopyObject().(*PageList)
	if !reflect.DeepEqual(list, copied) {
		t.Errorf("copied %+v, want %+v", copied, list)
	}
	*copied.Items[0].Spec.Replicas, copied.Items[0].Labels["x"], copied.Items[0].Status.Conditions[0].Type = 2, "z", "Other"
	if one != 1 || list.Items[0].Labels["x"] != "y" || list.Items[0].Status.Conditions[0].Type != available {
		t.Error("the copy shares memory with the original")
	}
}
