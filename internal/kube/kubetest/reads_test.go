// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestWaitShowsWhatItSaw: a wait that fails prints the last state of what the test read meanwhile, and nothing of what it read before.
func TestWaitShowsWhatItSaw(t *testing.T) {
	object := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "who", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
			}}},
			Data: map[string]string{"key": value},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(object("a", "old"), object("b", "before"), object("c", strings.Repeat("x", 10_000))).Build()
		env := Env{Client: c, T: t}
		other := Remembering(t, c)
		env.Read(object("b", ""))
		fails := &failing{TB: t}
		allReads.Store(testing.TB(fails), readsOf(t))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			Eventually(fails, "never", func() error {
				read := object("a", "")
				env.Read(read)
				read.Data["key"] = "new"
				env.Must(c.Update(t.Context(), read))
				_ = other.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "none"}, &corev1.Secret{}) // there is none
				env.Must(env.List(t.Context(), &corev1.PodList{}, client.InNamespace("shop")))
				env.Read(object("c", ""))
				return errFalse
			})
		})
		waiting.Wait()
		for _, want := range []string{
			"not within 30s: never: the condition is still false\nwhat the test read last:\n  ConfigMap shop/c: {", `ConfigMap shop/a: {`, `"key":"new"`,
			`Secret shop/none: secrets "none" not found`, "PodList shop: {", "[...]",
		} {
			if !strings.Contains(fails.text, want) {
				t.Errorf("the text lacks %q: %s", want, fails.text)
			}
		}
		for _, not := range []string{"before", "who", `"key":"old"`} {
			if strings.Contains(fails.text, not) {
				t.Errorf("the text has %q: %s", not, fails.text)
			}
		}
		if len(fails.text) > 6000 {
			t.Errorf("%d characters", len(fails.text))
		}
	})
}
