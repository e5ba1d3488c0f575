// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestRemoteNamespaces: the policy restricts what a peer writes in its remote namespace, whatever rights it has there.
func TestRemoteNamespaces(t *testing.T) {
	ctx, admin, root := installed(t, "peers.ingresses.hosts={*,}")
	const remote = "web-rome-000000"
	c := asPeer(ctx, t, admin, root, remote)
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
	ingress := map[string]any{
		"spec": map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": "x", "port": map[string]any{"number": int64(80)}}}},
	}
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
	kept := shadowPod("held")
	kept.SetFinalizers([]string{"virtualkubelet.liqo.io/pod-gone"})
	for _, one := range []*unstructured.Unstructured{shadowPod("stays"), shadowPod("goes"), kept} {
		if err := createUnchecked(ctx, root, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(ctx, shadowPod("goes"), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	released := c.Patch(ctx, shadowPod("goes"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), client.DryRunAll)
	ours := func() map[string]any {
		return map[string]any{"finalizers": []any{"virtualkubelet.liqo.io/pod-gone"}}
	}
	remove := func(name string, how metav1.DeletionPropagation) error {
		return c.Delete(ctx, shadowPod(name), client.DryRunAll, client.PropagationPolicy(how))
	}
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

		{"an Ingress", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/auth-secret", "users"), ingress), true},
		{"an Ingress with its Secret", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/auth-tls-secret", remote+"/ca"), ingress), true},

		{
			"an address, by annotation",
			try("v1", "Service", annotated("metallb.io/loadBalancerIPs", "192.0.2.1"), service(map[string]any{"type": "LoadBalancer"})), false,
		},
		{"the Services of other clusters", try("v1", "Service", annotated("service.cilium.io/global", "true"), service(nil)), false},
		{"the proxy's configuration", try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/configuration-snippet", "lua"), ingress), false},
		{
			"an Ingress with the Secret of another namespace",
			try("networking.k8s.io/v1", "Ingress", annotated("nginx.ingress.kubernetes.io/auth-tls-secret", "kube-system/ca"), ingress), false,
		},
		{"deletion of a ShadowPod in the foreground", remove("stays", metav1.DeletePropagationForeground), true},

		{"deletion of a ShadowPod that we hold, in the background", remove("held", metav1.DeletePropagationBackground), true},
		{"deletion of a ShadowPod that we hold, in the foreground", remove("held", metav1.DeletePropagationForeground), true},
		{"a ShadowPod with our finalizer", try("virtualkubelet.liqo.io/v1alpha1", "ShadowPod", ours(), map[string]any{"spec": map[string]any{"fence": "x"}}), true},

		{"deletion of a ShadowPod that we hold, which orphans its pod", remove("held", metav1.DeletePropagationOrphan), false},
		{
			"removal of our finalizer",
			c.Patch(ctx, shadowPod("held"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)), client.DryRunAll),
			false,
		},
		{"our finalizer on a ShadowPod that exists", c.Patch(
			ctx, shadowPod("stays"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["virtualkubelet.liqo.io/pod-gone"]}}`)), client.DryRunAll,
		), false},
		{
			"a ShadowPod with another finalizer",
			try("virtualkubelet.liqo.io/v1alpha1", "ShadowPod", held(), map[string]any{"spec": map[string]any{"fence": "x"}}), false,
		},
		{"a ConfigMap with our finalizer", try("v1", "ConfigMap", ours(), map[string]any{}), false},
		{"deletion of a ShadowPod in the background", remove("stays", metav1.DeletePropagationBackground), false},
		{"deletion of a ShadowPod that orphans its pod", remove("stays", metav1.DeletePropagationOrphan), false},
		{"deletion of a ShadowPod with the default policy", c.Delete(ctx, shadowPod("stays"), client.DryRunAll), false},
		{"removal of the finalizer of a ShadowPod", released, false},
		{"a Service with a finalizer", try("v1", "Service", held(), service(nil)), false},
		{"a slice with a finalizer", try("virtualkubelet.liqo.io/v1alpha1", "ShadowEndpointSlice", held(), map[string]any{}), false},
		{"external addresses", try("v1", "Service", nil, service(map[string]any{"externalIPs": []any{"10.96.0.1"}})), false},
		{"the address of a load balancer", try("v1", "Service", nil, service(map[string]any{"type": "LoadBalancer", "loadBalancerIP": "192.0.2.1"})), false},
		{"a token of this cluster", try("v1", "Secret", token, map[string]any{"type": "kubernetes.io/service-account-token"}), false},
	} {
		if test.allowed && test.err != nil || !test.allowed && (!apierrors.IsInvalid(test.err) && !apierrors.IsForbidden(test.err) ||
			!strings.Contains(test.err.Error(), "liqo-peers-remote-namespaces")) {
			t.Errorf("%s: %v, want allowed: %t", test.what, test.err, test.allowed)
		}
	}
}

// TestAttackH3: a peer that has taken the name of a component's namespace gets nothing of the component, and cannot take well-known names at all.
func TestAttackH3(t *testing.T) {
	var deny []string
	for _, argument := range charttest.Field(
		t, charttest.Find(t, charttest.Render(t), "Deployment", "liqo-controller-manager"), "spec", "template", "spec", "containers",
	).([]any)[0].(map[string]any)["args"].([]any) {
		if list, is := strings.CutPrefix(argument.(string), "--peer-namespaces-deny="); is {
			deny = strings.Split(list, ",")
		}
	}
	denied := func(name string) bool {
		return slices.ContainsFunc(deny, func(pattern string) bool { matched, _ := path.Match(pattern, name); return matched })
	}
	for _, name := range strings.Fields("argocd cert-manager monitoring istio-system flux-system vault gitlab gatekeeper-system calico-system " +
		"cattle-system longhorn-system ingress-nginx external-secrets kyverno velero") {
		if !denied(name) {
			t.Errorf("a peer may take the name %s", name)
		}
	}
	for _, name := range strings.Fields("shop web liqo-demo online-boutique team-a staging") {
		if denied(name) {
			t.Errorf("a peer may not take the name %s", name)
		}
	}

	ctx, admin, root := installed(t)
	const remote = "gitops"
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remote, Labels: map[string]string{labels.RemoteClusterID: "rome"}}}
	if err := root.Create(ctx, space); err != nil {
		t.Fatal(err)
	}
	as := func(user string) client.Client {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}} // only the policy limits it
		return connect(t, config)
	}
	object := func(version, kind, name string, rest map[string]any) *unstructured.Unstructured {
		made := &unstructured.Unstructured{Object: map[string]any{}}
		maps.Copy(made.Object, rest)
		made.SetAPIVersion(version)
		made.SetKind(kind)
		made.SetNamespace(remote)
		made.SetName(name)
		return made
	}
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{
		"containers": []any{map[string]any{"name": "c", "image": "i"}}, "restartPolicy": "Always",
	}}
	selector := map[string]any{"matchLabels": map[string]any{"a": "b"}}
	once := map[string]any{
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}, "restartPolicy": "Never"}},
	}
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	pod := object("v1", "Pod", "x", spec(template["spec"].(map[string]any)))
	peers := object("v1", "Pod", "x", spec(map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}, "automountServiceAccountToken": false}))
	peers.SetLabels(map[string]string{labels.Origin: "rome"})
	secret := object("v1", "Secret", "x", map[string]any{"stringData": map[string]any{"password": "x"}})
	account := object("v1", "ServiceAccount", "x", nil)
	token := object("v1", "Secret", "token", map[string]any{
		"type":     "kubernetes.io/service-account-token",
		"metadata": map[string]any{"annotations": map[string]any{"kubernetes.io/service-account.name": "default"}},
	})
	binding := object("rbac.authorization.k8s.io/v1", "RoleBinding", "x", map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
		"subjects": []any{map[string]any{"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}},
	})
	components := []*unstructured.Unstructured{
		pod, peers, secret, account, token, binding,
		object("apps/v1", "Deployment", "x", spec(map[string]any{"selector": selector, "template": template})),
		object("apps/v1", "StatefulSet", "x", spec(map[string]any{"selector": selector, "template": template, "serviceName": "x"})),
		object("apps/v1", "DaemonSet", "x", spec(map[string]any{"selector": selector, "template": template})),
		object("apps/v1", "ReplicaSet", "x", spec(map[string]any{"selector": selector, "template": template})),
		object("v1", "ReplicationController", "x", spec(map[string]any{"selector": map[string]any{"a": "b"}, "template": template})),
		object("batch/v1", "Job", "x", spec(once)),
		object("batch/v1", "CronJob", "x", spec(map[string]any{"schedule": "* * * * *", "jobTemplate": spec(once)})),
		object("rbac.authorization.k8s.io/v1", "Role", "x", map[string]any{"rules": []any{}}),
	}
	administrator, helm, ours, peer := as("kubernetes-admin"), as("system:serviceaccount:kube-system:helm-argocd"),
		as("system:serviceaccount:liqo:liqo-controller-manager"), as("system:serviceaccount:liqo-tenant-rome-000000:liqo-peer")
	inForce(t, "liqo-remote-namespaces", func() error { return administrator.Create(ctx, secret.DeepCopy(), client.DryRunAll) })
	inForce(t, "liqo-remote-namespaces-pods", func() error { return administrator.Create(ctx, pod.DeepCopy(), client.DryRunAll) })
	inForce(t, "liqo-peers-pods", func() error { return administrator.Create(ctx, peers.DeepCopy(), client.DryRunAll) })
	try := func(c client.Client, what *unstructured.Unstructured, allowed bool) {
		t.Helper()
		err := c.Create(ctx, what.DeepCopy(), client.DryRunAll)
		refused := err != nil && strings.Contains(err.Error(), "this namespace belongs to another cluster")
		if refused == allowed || allowed && err != nil {
			t.Errorf("%s %s: %v, want allowed: %t", what.GetKind(), what.GetName(), err, allowed)
		}
	}
	unchecked(ctx, t, root, peer, space.Name)
	for _, what := range components {
		try(administrator, what, false)
		try(helm, what, false)
		try(as("system:serviceaccount:kube-system:replicaset-controller"), what, false)
		if what.GetKind() != "Secret" {
			try(peer, what, false)
		}
	}
	// The peer's own objects, and those of Kubernetes and of the provider's administrator.
	try(peer, secret, true)
	try(ours, secret, false)
	try(ours, pod, true)
	try(ours, peers, true)
	try(as("system:serviceaccount:kube-system:tokens-controller"), token, true)
	try(as("system:serviceaccount:kube-system:tokens-controller"), secret, false)
	for _, user := range []string{"system:kube-controller-manager", "system:serviceaccount:kube-system:service-account-controller"} {
		try(as(user), object("v1", "ServiceAccount", "default", nil), true)
		try(as(user), account, false)
	}
	for _, what := range []*unstructured.Unstructured{
		object("v1", "ResourceQuota", "x", spec(map[string]any{"hard": map[string]any{"pods": "1"}})),
		object("v1", "LimitRange", "x", spec(map[string]any{"limits": []any{}})),
		object("networking.k8s.io/v1", "NetworkPolicy", "x", spec(map[string]any{"podSelector": map[string]any{}})), object("v1", "ConfigMap", "x", nil),
		object(
			"v1", "PersistentVolumeClaim", "x",
			spec(map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}),
		),
	} {
		try(administrator, what, true)
	}
	// An administrator may label a Secret of the peer, and may not put a password of this cluster into it.
	if err := peer.Create(ctx, secret.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	change := func(text string) error {
		return administrator.Patch(ctx, secret.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	if err := change(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := change(`{"stringData":{"password":"of this cluster"}}`); err == nil {
		t.Error("the administrator's tool wrote a password into a Secret of the peer")
	}
	// The peer enters pods as long as they are all its own.
	enter := func() error {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:liqo-tenant-rome-000000:liqo-peer", Groups: []string{"system:masters", "system:authenticated"},
		}
		api, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		return api.CoreV1().RESTClient().Post().Namespace(remote).Resource("pods").Name("missing").SubResource("exec").Param("command", "sh").Param("stdout", "true").
			Do(ctx).Error()
	}
	if err := enter(); err == nil || strings.Contains(err.Error(), "liqo-remote-namespaces") {
		t.Errorf("enter a pod of its own: %v, want that it does not exist", err)
	}
	space.Annotations = map[string]string{labels.OpenRemoteNamespace: "true"}
	if err := root.Update(ctx, space); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the namespace is open", func() error { return administrator.Create(ctx, secretNamed(secret, "y"), client.DryRunAll) })
	inForce(t, "liqo-remote-namespaces", enter)
	for _, what := range []*unstructured.Unstructured{pod, peers} {
		try(administrator, what, true)
	}
}

func secretNamed(secret *unstructured.Unstructured, name string) *unstructured.Unstructured {
	other := secret.DeepCopy()
	other.SetName(name)
	return other
}

// removeWebhooks removes the webhooks that validate, which no process serves here.
func removeWebhooks(ctx context.Context, c client.Client) error {
	hooks := &unstructured.Unstructured{}
	hooks.SetAPIVersion("admissionregistration.k8s.io/v1")
	hooks.SetKind("ValidatingWebhookConfiguration")
	hooks.SetName("liqo")
	return client.IgnoreNotFound(c.Delete(ctx, hooks))
}

// unchecked removes the webhooks, and waits until the API server does not call them any more for a client that may create ConfigMaps in a namespace.
func unchecked(ctx context.Context, t *testing.T, root, by client.Client, namespace string) {
	t.Helper()
	if err := removeWebhooks(ctx, root); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the API server calls no webhook", func() error {
		err := by.Create(ctx, peerObject(namespace, "ConfigMap", nil, nil, nil), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "failed calling webhook") {
			return err
		}
		return nil
	})
}

// createUnchecked creates an object after removing its webhooks.
func createUnchecked(ctx context.Context, c client.Client, object client.Object) error {
	if err := removeWebhooks(ctx, c); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		return c.Create(ctx, object) == nil, nil // the API server observes the removal a little later
	})
}
