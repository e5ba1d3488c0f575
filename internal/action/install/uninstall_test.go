// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// withoutWebhooks removes those of an installation: no pod answers them in this cluster.
func (e *env) withoutWebhooks() {
	e.t.Helper()
	var hooks metav1.PartialObjectMetadataList
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		hooks.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind + "List"})
		if err := e.client.List(e.t.Context(), &hooks); err != nil {
			e.t.Fatal(err)
		}
		for i := range hooks.Items {
			hooks.Items[i].SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
			if err := e.client.Delete(e.t.Context(), &hooks.Items[i]); err != nil {
				e.t.Fatal(err)
			}
		}
	}
}

// create creates an object. The API server stops calling a deleted webhook only after a moment.
func (e *env) create(object client.Object) {
	e.t.Helper()
	err := wait.PollUntilContextTimeout(e.t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := e.client.Create(ctx, object)
		if apierrors.IsInternalError(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// release removes the finalizers of an object that is being deleted.
func (e *env) release(object client.Object) {
	e.t.Helper()
	if err := e.client.Patch(
		e.t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)),
	); client.IgnoreNotFound(err) != nil {
		e.t.Error(err)
	}
}

// TestUninstallWaits: what is ending already is no use that the user has to end. The command names it with what holds it, waits, and goes on alone; when the
// time is over, it has changed nothing, and reports what was still there. The same for a namespace in which it is installed again.
func TestUninstallWaits(t *testing.T) {
	e := newEnv(t)
	if _, err := e.install(options()); err != nil {
		t.Fatal(err)
	}
	e.withoutWebhooks()
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Finalizers: []string{"example.com/backup"}}}
	e.create(shop)
	shop.Status.Conditions = []corev1.NamespaceCondition{{
		Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue,
		Message: "Some resources are remaining: pods. has 2 resource instances", LastTransitionTime: metav1.Now(),
	}}
	if err := e.client.Status().Update(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	offloading := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	offloading.SetGroupVersionKind(schema.GroupVersionKind{Group: "offloading.liqo.io", Version: "v1alpha1", Kind: "NamespaceOffloading"})
	offloading.SetNamespace("shop")
	offloading.SetName("offloading")
	offloading.SetFinalizers([]string{labels.FinalizerNamespaceOffloading})
	e.create(offloading)
	// Kubernetes marks the namespace first, and what is in it later.
	if err := e.client.Delete(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	// what this cluster changes of it
	gone := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitLimit, true, func(ctx context.Context) (bool, error) {
		err := e.client.Get(ctx, client.ObjectKeyFromObject(shop), shop)
		return err == nil && len(shop.Spec.Finalizers) == 0, err
	})
	if gone != nil {
		t.Fatal(gone)
	}
	wants := []string{
		`namespace "shop" is still being deleted since 2`, "has the finalizer " + labels.FinalizerNamespaceOffloading,
		"pods. has 2 resource instances", "the namespace itself has the finalizer example.com/backup",
	}
	contains := func(text string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
	before := e.versions()
	over := expiring{t.Context(), make(chan struct{})}
	progress := &recorder{started: func(text string) {
		if strings.Contains(text, "still being deleted") {
			close(over.expired)
		}
	}}
	err := Uninstall(over, e.cluster, UninstallOptions{Namespace: "liqo", Timeout: waitLimit}, progress)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Liqo was not uninstalled, and nothing was changed") {
		t.Fatal(err)
	}
	contains(err.Error())
	if lines := differ(before, e.versions()); len(lines) > 0 {
		t.Errorf("changed:\n%s", strings.Join(lines, "\n"))
	}
	reported := ""
	progress = &recorder{started: func(text string) {
		if reported == "" && strings.Contains(text, "still being deleted") {
			reported = text
			if err := e.client.Delete(t.Context(), offloading); err != nil {
				t.Error(err)
			}
			e.release(offloading)
			e.release(shop)
		}
	}}
	if err := Uninstall(t.Context(), e.cluster, UninstallOptions{Namespace: "liqo", Timeout: waitLimit}, progress); err != nil {
		t.Fatal(err, progress.text())
	}
	contains(reported)
	i := slices.IndexFunc(progress.lines, func(line string) bool { return strings.HasPrefix(line, "INFO Waiting: namespace") })
	if done := slices.Index(progress.lines, "INFO What was ending is gone"); i < 0 || done < i || slices.Index(progress.lines, "INFO Liqo uninstalled") < done {
		t.Errorf("lines:\n%s", progress.text())
	}

	// The namespace of Liqo is also going, and the next installation waits for it.
	liqo := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}
	if err := e.client.Patch(
		t.Context(), liqo, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["example.com/backup"]}}`)),
	); err != nil {
		t.Fatal(err)
	}
	if err := e.client.Delete(t.Context(), liqo); err != nil {
		t.Fatal(err)
	}
	prepared, err := Prepare(t.Context(), e.cluster, options())
	if err != nil {
		t.Fatal(err)
	}
	reported = ""
	if _, err := prepared.Apply(t.Context(), &recorder{started: func(text string) {
		if reported == "" && strings.Contains(text, "still being deleted") {
			reported = text
			e.release(liqo)
		}
	}}); err != nil || !strings.Contains(reported, `namespace "liqo" is still being deleted since 2`) ||
		!strings.Contains(reported, "the finalizer example.com/backup") {
		t.Errorf("installed again: %v, %q", err, reported)
	}
}
