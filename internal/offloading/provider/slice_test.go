// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

func TestServed(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	slice := func(name string, age time.Duration, finalizers ...string) sharingv1alpha1.ResourceSlice {
		return sharingv1alpha1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	}
	for _, c := range []struct {
		want string
		all  []sharingv1alpha1.ResourceSlice
	}{
		{"", nil},
		{"old", []sharingv1alpha1.ResourceSlice{slice("new", 0), slice("old", time.Hour)}},
		{"a", []sharingv1alpha1.ResourceSlice{slice("b", 0), slice("a", 0)}},
		{"has it", []sharingv1alpha1.ResourceSlice{slice("old", time.Hour), slice("has it", 0, labels.FinalizerNode)}},
	} {
		got := ""
		if first := Served(c.all); first != nil {
			got = first.Name
		}
		if got != c.want {
			t.Errorf("served %q, want %q", got, c.want)
		}
	}
}
