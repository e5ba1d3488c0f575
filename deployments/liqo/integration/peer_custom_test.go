// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
)

// peerCustomResources grants a peer a custom resource, and tries what it may not do with it.
func peerCustomResources(ctx context.Context, t *testing.T, c, root client.Client, remote string) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	objects := []*unstructured.Unstructured{definition}
	for _, object := range charttest.Render(t, "peers.customResources={widgets.example.com}", "peers.metadata.customResources.annotations={example.org/*}") {
		if strings.HasPrefix(object.GetName(), "liqo-peers-custom-resources") {
			objects = append(objects, object)
		}
	}
	if len(objects) != 3 {
		t.Fatalf("the chart has %d objects for custom resources, want the policy and its binding", len(objects)-1)
	}
	for _, object := range objects {
		if err := root.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	widget := func(labels, annotations keys, more map[string]any) *unstructured.Unstructured {
		one := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
		for key, value := range more {
			one.Object["metadata"].(map[string]any)[key] = value
		}
		one.SetAPIVersion("example.com/v1")
		one.SetKind("Widget")
		one.SetNamespace(remote)
		one.SetName("x")
		one.SetLabels(labels)
		one.SetAnnotations(annotations)
		return one
	}
	kubetest.Eventually(t, "the definition is served", func() error { return root.Create(ctx, widget(nil, nil, nil), client.DryRunAll) })
	inForce(t, "liqo-peers-custom-resources", func() error {
		return c.Create(ctx, widget(nil, nil, map[string]any{"finalizers": []any{"example.com/hold"}}), client.DryRunAll)
	})
	owner := []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "5b2f0c0e-7f1d-4a38-9c1a-0b6f6a1d2e3c"}}
	for _, test := range []struct {
		what    string
		object  *unstructured.Unstructured
		refused string
	}{
		{"an ordinary one", widget(keys{"app": "x", "virtualkubelet.liqo.io/origin": "rome"}, keys{"liqo.io/local-generation": "1", "example.org/a": "b"}, nil), ""},
		{"an order to a component", widget(nil, keys{"cert-manager.io/cluster-issuer": "x"}, nil), "peers.metadata.customResources"},
		{"a label that components select", widget(keys{"argocd.argoproj.io/instance": "x"}, nil, nil), "metadata refused: labels [argocd.argoproj.io/instance]"},
		{"a finalizer", widget(nil, nil, map[string]any{"finalizers": []any{"example.com/hold"}}), "finalizer"},
		{"an owner", widget(nil, nil, map[string]any{"ownerReferences": owner}), "must not have owners"},
	} {
		err := c.Create(ctx, test.object, client.DryRunAll)
		if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: %v, want a refusal with %q", test.what, err, test.refused)
		}
	}
}

// TestCustomResourceValues: two values grant custom resources, each to whom it names and no more, and never those of Kubernetes or of Liqo.
func TestCustomResourceValues(t *testing.T) {
	rules := func(values, role string) string {
		for _, object := range charttest.Render(t, values) {
			if object.GetKind() != "ClusterRole" || object.GetName() != role {
				continue
			}
			var has rbacv1.ClusterRole
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &has); err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, rule := range has.Rules {
				if strings.Join(rule.APIGroups, ",") == "example.com" {
					found = append(found, strings.Join(rule.Resources, ",")+":"+strings.Join(rule.Verbs, ","))
				}
			}
			return strings.Join(found, " ")
		}
		t.Fatalf("no ClusterRole %s", role)
		return ""
	}
	const here, there = "virtualKubelet.customResources={widgets.example.com}", "peers.customResources={widgets.example.com}"
	for _, test := range []struct{ values, role, want string }{
		{here, "liqo-virtual-kubelet-offloaded", "widgets:list,watch widgets/status:update"},
		{here, "liqo-virtual-kubelet-remote", ""},
		{here, "liqo-controller-manager-remote", ""},
		{there, "liqo-virtual-kubelet-offloaded", ""},
		{there, "liqo-virtual-kubelet-remote", "widgets:get,list,watch,create,patch,delete"},
		{there, "liqo-controller-manager-remote", "widgets:list"},
	} {
		if got := rules(test.values, test.role); got != test.want {
			t.Errorf("%s: %s has %q, want %q", test.values, test.role, got, test.want)
		}
	}
	for _, name := range []string{
		"*.example.com", "widgets.*", "widgets", "roles.rbac.authorization.k8s.io", "ingresses.networking.k8s.io",
		"namespacemaps.virtualkubelet.liqo.io", "deployments.apps", "widgets.example.com/status",
	} {
		for _, value := range []string{"virtualKubelet.customResources", "peers.customResources"} {
			values := charttest.Required()
			charttest.Set(values, value, []any{name})
			if _, err := charttest.RenderValues(t, nil, values); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %s: %v, want a refusal that names it", value, name, err)
			}
		}
	}
	values := charttest.Required()
	charttest.Set(values, "peers.customResources", []any{"gateways.gateway.networking.k8s.io", "volumesnapshots.snapshot.storage.k8s.io"})
	if _, err := charttest.RenderValues(t, nil, values); err != nil {
		t.Errorf("custom resources of Kubernetes' own projects: %v", err)
	}
}
