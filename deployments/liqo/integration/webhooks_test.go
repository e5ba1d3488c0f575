// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestShadowPodWebhookOfDeletion: a ShadowPod in deletion loses its finalizer without the webhook, which nothing serves here. Every other change of it is
// checked: a peer that may delete must not be able to fill the store, or to change what counts for its quota, with what it deletes.
func TestShadowPodWebhookOfDeletion(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote, webhook = "web-rome-000000", "shadowpod.validate.liqo.io"
	shadowPod := func(name string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fence": name}}}
		object.SetAPIVersion("virtualkubelet.liqo.io/v1alpha1")
		object.SetKind("ShadowPod")
		object.SetNamespace(remote)
		object.SetName(name)
		return object
	}
	config := &unstructured.Unstructured{}
	config.SetAPIVersion("admissionregistration.k8s.io/v1")
	config.SetKind("ValidatingWebhookConfiguration")
	if err := root.Get(ctx, client.ObjectKey{Name: "liqo"}, config); err != nil {
		t.Fatal(err)
	}
	asPeer(ctx, t, admin, root, remote)
	goes := shadowPod("goes")
	goes.SetLabels(map[string]string{"a": "b"})
	goes.SetFinalizers([]string{"example.com/theirs"})
	for _, one := range []*unstructured.Unstructured{goes, shadowPod("stays")} {
		if err := createUnchecked(ctx, root, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := root.Delete(ctx, shadowPod("goes"), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	config.SetResourceVersion("")
	config.SetUID("")
	if err := root.Create(ctx, config); err != nil {
		t.Fatal(err)
	}
	called := func(err error) bool { return err != nil && strings.Contains(err.Error(), webhook) }
	kubetest.Eventually(t, "the webhook is called", func() error {
		err := root.Patch(ctx, shadowPod("stays"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
		if !called(err) {
			return fmt.Errorf("a change, answered with %w", err)
		}
		return nil
	})
	for _, c := range []struct {
		what, name, patch string
		called            bool
	}{
		{"its finalizers", "goes", `{"metadata":{"finalizers":null}}`, false},
		{"one of its finalizers", "goes", `{"metadata":{"finalizers":["example.com/theirs"]}}`, false},
		{"no finalizer", "goes", `{"metadata":{"managedFields":[{}]}}`, true},
		{"its spec", "goes", `{"spec":{"pod":{"priority":1}}}`, true},
		{"its spec and its finalizers", "goes", `{"metadata":{"finalizers":null},"spec":{"pod":{"priority":1}}}`, true},
		{"a label", "goes", `{"metadata":{"labels":{"a":"c"}}}`, true},
		{"a label less", "goes", `{"metadata":{"labels":null}}`, true},
		{"an annotation", "goes", `{"metadata":{"annotations":{"a":"b"},"finalizers":null}}`, true},
		{"an owner", "goes", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"y"}]}}`, true},
		{"a label of one that stays", "stays", `{"metadata":{"labels":{"a":"b"}}}`, true},
		{"a finalizer of one that stays", "stays", `{"metadata":{"finalizers":["example.com/theirs"]}}`, true},
	} {
		err := root.Patch(ctx, shadowPod(c.name), client.RawPatch(types.MergePatchType, []byte(c.patch)), client.DryRunAll)
		if called(err) != c.called || !c.called && err != nil {
			t.Errorf("%s: %v, want the webhook called: %t", c.what, err, c.called)
		}
	}
}
