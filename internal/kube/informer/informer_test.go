// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFollow: an object is set when it comes and when it changes, and forgotten when it goes, also if its end was missed.
func TestFollow(t *testing.T) {
	from := &informertest.FakeInformers{}
	var seen []string
	note := func(what string) func(any) {
		return func(object any) {
			one, is := object.(client.Object)
			if !is {
				t.Fatalf("%s of a %T", what, object)
			}
			seen = append(seen, what+" "+one.GetName())
		}
	}
	synced, err := Follow(t.Context(), from, &corev1.Pod{}, note("set"), note("forget"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := from.FakeInformerFor(t.Context(), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	made.Add(pod("a"))
	made.Update(pod("a"), pod("b"))
	made.Delete(pod("b"))
	if want := []string{"set a", "set b", "forget b"}; !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
	if synced == nil {
		t.Error("nothing reports whether the first list is in")
	}
	if got := Object(toolscache.DeletedFinalStateUnknown{Key: "x", Obj: pod("c")}); got.(*corev1.Pod).Name != "c" {
		t.Errorf("missed: %v", got)
	}
}
