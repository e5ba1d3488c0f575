// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestRemoteNamespaces: the policy restricts what a peer writes in its remote namespace, whatever rights it has there.
func TestRemoteNamespaces(t *testing.T) {
	ctx, admin, root := installed(t)
	const tenant, remote = "liqo-tenant-rome-000000", "web-rome-000000"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remote, Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: remote, Name: "peer"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: "liqo-peer"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		},
	} {
		if err := root.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	limited := rest.CopyConfig(admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + tenant + ":liqo-peer", Groups: []string{"system:authenticated"}}
	c := connect(t, limited)
	try := func(version, kind string, metadata, rest map[string]any) error {
		object := &unstructured.Unstructured{Object: rest}
		if metadata != nil {
			object.Object["metadata"] = metadata
		}
		object.SetAPIVersion(version)
		object.SetKind(kind)
		object.SetNamespace(remote)
		object.SetName("x")
		return c.Create(ctx, object, client.DryRunAll)
	}
	held := func() map[string]any { return map[string]any{"finalizers": []any{"example.com/held"}} }
	service := func(more map[string]any) map[string]any {
		spec := map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
		for key, value := range more {
			spec[key] = value
		}
		return map[string]any{"spec": spec}
	}
	inForce(t, "liqo-peers-remote-namespaces", func() error { return try("v1", "ConfigMap", held(), map[string]any{}) })
	ingress := map[string]any{"spec": map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": "x", "port": map[string]any{"number": int64(80)}}}}}
	annotated := func(key, value string) map[string]any {
		return map[string]any{"annotations": map[string]any{key: value}}
	}
	// Two ShadowPods, one of which is being deleted while its pod still exists.
	shadowPod := func(name string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"fence": name}}}
		object.SetAPIVersion("virtualkubelet.liqo.io/v1alpha1")
		object.SetKind("ShadowPod")
		object.SetNamespace(remote)
		object.SetName(name)
		return object
	}
	for _, name := range []string{"stays", "goes"} {
		if err := createUnchecked(ctx, root, shadowPod(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(ctx, shadowPod("goes"), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	released := c.Patch(ctx, shadowPod("goes"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), client.DryRunAll)
	claim := map[string]any{"spec": map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}}
	token := map[string]any{"annotations": map[string]any{"kubernetes.io/service-account.name": "default"}}
	for _, test := range []struct {
		what    string
		err     error
		allowed bool
	}{
		{"a ConfigMap", try("v1", "ConfigMap", nil, map[string]any{}), true},
		{"a Secret", try("v1", "Secret", nil, map[string]any{"type": "Opaque"}), true},
		{"a Service", try("v1", "Service", nil, service(nil)), true},
		{"a load balancer", try("v1", "Service", nil, service(map[string]any{"type": "LoadBalancer"})), true},
		{"a node port", try("v1", "Service", nil, service(map[string]any{"type": "NodePort"})), true},
		{"another name", try("v1", "Service", nil, service(map[string]any{"type": "ExternalName", "externalName": "example.com"})), true},
		{"a claim", try("v1", "PersistentVolumeClaim", nil, claim), true},

		{"an Ingress", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/auth-secret", "users"), ingress), true},
		{"an Ingress with its Secret", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/auth-tls-secret", remote+"/ca"), ingress), true},

		{"an address, by annotation", try("v1", "Service", annotated("metallb.io/loadBalancerIPs", "192.0.2.1"), service(map[string]any{"type": "LoadBalancer"})), false},
		{"the Services of other clusters", try("v1", "Service", annotated("service.cilium.io/global", "true"), service(nil)), false},
		{"the proxy's configuration", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/configuration-snippet", "lua"), ingress), false},
		{"an Ingress with the Secret of another namespace", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/auth-tls-secret", "kube-system/ca"), ingress), false},
		{"deletion of a ShadowPod in the foreground", c.Delete(ctx, shadowPod("stays"), client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationForeground)), true},

		{"deletion of a ShadowPod in the background", c.Delete(ctx, shadowPod("stays"), client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationBackground)), false},
		{"deletion of a ShadowPod that orphans its pod", c.Delete(ctx, shadowPod("stays"), client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationOrphan)), false},
		{"deletion of a ShadowPod with the default policy", c.Delete(ctx, shadowPod("stays"), client.DryRunAll), false},
		{"removal of the finalizer of a ShadowPod", released, false},
		{"a claim with a finalizer", try("v1", "PersistentVolumeClaim", held(), claim), false},
		{"a Service with a finalizer", try("v1", "Service", held(), service(nil)), false},
		{"a slice with a finalizer", try("virtualkubelet.liqo.io/v1alpha1", "ShadowEndpointSlice", held(), map[string]any{}), false},
		{"external addresses", try("v1", "Service", nil, service(map[string]any{"externalIPs": []any{"10.96.0.1"}})), false},
		{"the address of a load balancer", try("v1", "Service", nil, service(map[string]any{"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"})), false},
		{"a token of this cluster", try("v1", "Secret", token, map[string]any{"type": "kubernetes.io/service-account-token"}), false},
	} {
		if test.allowed && test.err != nil || !test.allowed && (!apierrors.IsInvalid(test.err) && !apierrors.IsForbidden(test.err) || !strings.Contains(test.err.Error(), "liqo-peers-remote-namespaces")) {
			t.Errorf("%s: %v, want allowed: %t", test.what, test.err, test.allowed)
		}
	}
}

// createUnchecked creates an object after removing its webhooks, which no process serves here.
func createUnchecked(ctx context.Context, c client.Client, object client.Object) error {
	hooks := &unstructured.Unstructured{}
	hooks.SetAPIVersion("admissionregistration.k8s.io/v1")
	hooks.SetKind("ValidatingWebhookConfiguration")
	hooks.SetName("liqo")
	if err := client.IgnoreNotFound(c.Delete(ctx, hooks)); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		return c.Create(ctx, object) == nil, nil // the API server observes the removal a little later
	})
}
