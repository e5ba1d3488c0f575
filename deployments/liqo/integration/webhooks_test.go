// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
	config := webhookConfiguration(ctx, t, root, "ValidatingWebhookConfiguration")
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

// TestMutatingWebhooksOfPods: which ShadowPods and pods the API server asks about. Nothing serves the webhooks here, and an unanswered call fails.
func TestMutatingWebhooksOfPods(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote, ofShadowPods, ofPods = "web-rome-000000", "shadowpod.mutate.liqo.io", "remotepod.mutate.liqo.io"
	config := webhookConfiguration(ctx, t, root, "MutatingWebhookConfiguration")
	asPeer(ctx, t, admin, root, remote)
	hooks, _, err := unstructured.NestedSlice(config.Object, "webhooks")
	if err != nil {
		t.Fatal(err)
	}
	hooks = slices.DeleteFunc(hooks, func(one any) bool {
		hook, _ := one.(map[string]any)
		hook["failurePolicy"] = "Fail"
		return hook["name"] != ofShadowPods && hook["name"] != ofPods
	})
	if len(hooks) != 2 {
		t.Fatalf("%d webhooks", len(hooks))
	}
	config.Object["webhooks"] = hooks
	if err := root.Update(ctx, config); err != nil {
		t.Fatal(err)
	}
	object := func(apiVersion, kind string, metadata, spec map[string]any) *unstructured.Unstructured {
		metadata["name"] = "x"
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}}
	}
	shadowPod := func(metadata map[string]any) *unstructured.Unstructured {
		metadata["namespace"] = remote
		return object("virtualkubelet.liqo.io/v1alpha1", "ShadowPod", metadata, map[string]any{"fence": "f"})
	}
	pod := func(namespace string, labels map[string]any) *unstructured.Unstructured {
		return object(
			"v1", "Pod", map[string]any{"namespace": namespace, "labels": labels},
			map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
		)
	}
	if err := root.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	if err := root.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	create := func(one *unstructured.Unstructured) error { return root.Create(ctx, one, client.DryRunAll) }
	asks := func(webhook string, err error) bool { return err != nil && strings.Contains(err.Error(), webhook) }
	kubetest.Eventually(t, "both webhooks are called", func() error {
		if one, other := create(shadowPod(map[string]any{})),
			create(pod(remote, map[string]any{"liqo.io/managed-by": "shadowpod"})); !asks(ofShadowPods, one) || !asks(ofPods, other) {
			return fmt.Errorf("answers %w, %w", one, other)
		}
		return nil
	})
	for what, err := range map[string]error{
		"a ShadowPod that has the finalizer": create(shadowPod(map[string]any{"finalizers": []any{"virtualkubelet.liqo.io/pod-gone"}})),
		"another pod in a remote namespace":  create(pod(remote, map[string]any{"liqo.io/managed-by": "x"})),
		"a pod in a namespace of no peer":    create(pod("default", map[string]any{"liqo.io/managed-by": "shadowpod"})),
	} {
		if err != nil {
			t.Errorf("%s: %v, want no call", what, err)
		}
	}
}

// webhookConfiguration returns the configuration of the chart's webhooks of a kind.
func webhookConfiguration(ctx context.Context, t *testing.T, c client.Client, kind string) *unstructured.Unstructured {
	t.Helper()
	config := &unstructured.Unstructured{}
	config.SetAPIVersion("admissionregistration.k8s.io/v1")
	config.SetKind(kind)
	if err := c.Get(ctx, client.ObjectKey{Name: "liqo"}, config); err != nil {
		t.Fatal(err)
	}
	return config
}
