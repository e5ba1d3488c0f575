// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAttackM7Unselected: an API server of another cluster ignores the selector, at the start of the watch and later. What is not selected is neither kept nor
// reported; what is not selected any more is reported as deleted.
func TestAttackM7Unselected(t *testing.T) {
	const foreign = 100
	version := 0
	pod := func(name string, labels map[string]string) *corev1.Pod {
		version++
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(version), Labels: labels}}
	}
	ours := map[string]string{"origin": "rome", "app": "web"}
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			w := watch.NewFake()
			flood := func(when string) {
				for i := range foreign / 2 {
					w.Add(pod(fmt.Sprint(when, i), map[string]string{"origin": "another"}))
				}
			}
			go func() {
				flood("before")
				w.Add(pod("first", ours))
				end := pod("", nil)
				end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
				w.Action(watch.Bookmark, end)
				flood("after")
				w.Modify(pod("first", nil))
				w.Add(pod("second", ours))
			}()
			return w, nil
		},
	})
	changes := make(chan string, 2*foreign)
	s := New(Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Select: []client.ListOption{client.MatchingLabels{"origin": "rome"}},
		Client: func(context.Context) (client.WithWatch, error) { return c, nil },
		Changed: func(before, after client.Object) {
			if after == nil {
				changes <- "-" + before.GetName()
				return
			}
			changes <- "+" + after.GetName()
		},
	})
	s.Add(t.Context(), "remote")
	kubetest.Eventually(t, "the last object arrives", func() error {
		if s.Get(types.NamespacedName{Namespace: "remote", Name: "second"}) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	for _, want := range []string{"+first", "-first", "+second"} {
		if got := <-changes; got != want {
			t.Errorf("reported %s, want %s", got, want)
		}
	}
	if kept := s.All("remote"); len(kept) != 1 || len(changes) > 0 {
		t.Errorf("%d objects are kept, %d more changes", len(kept), len(changes))
	}
}
