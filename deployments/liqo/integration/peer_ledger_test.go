// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/ledger"
	"liqo.io/liqo/internal/offloading/peerobjects"
)

// withLedger serves the webhook that counts for peers, with the configuration of the chart, and returns clients that have all rights, as any user.
func withLedger(t *testing.T, limits ledger.Limits, namespaces ...string) (admin *rest.Config, root client.Client, as func(user string) client.Client) {
	t.Helper()
	ctx, admin, root := installed(t)
	for _, add := range []func() error{
		func() error { return vkv1alpha1.AddToScheme(root.Scheme()) }, func() error { return sharingv1alpha1.AddToScheme(root.Scheme()) },
	} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeWebhooks(ctx, root); err != nil {
		t.Fatal(err)
	}
	public, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects, dir := charttest.Render(t), t.TempDir()
	segment, err := base64.StdEncoding.DecodeString(fmt.Sprint(charttest.Field(t, charttest.Find(t, objects, "Secret", "liqo-webhook-certs"), "data", "path")))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": public, "tls.key": private, "path": segment} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	mgr, err := kubemanager.New(admin, kubemanager.Options{Scheme: root.Scheme(), WebhookPort: port, WebhookCertDir: dir, SkipNameValidation: true})
	if err != nil {
		t.Fatal(err)
	}
	peers, err := peerobjects.Setup(mgr, peerobjects.Options{
		Limits: limits, Known: func(namespace string) string { return namespace[strings.LastIndex(namespace, "-")+1:] },
		Namespaces: func(string) []string { return namespaces },
	})
	if err != nil {
		t.Fatal(err)
	}
	peerobjects.Register(mgr.GetWebhookServer(), peers)
	kubetest.Start(t, "manager", mgr.Start)
	hooks := charttest.Find(t, objects, "ValidatingWebhookConfiguration", "liqo").DeepCopy()
	if err := keepLedger(hooks, func(path string) map[string]any {
		return map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d%s", port, path), "caBundle": base64.StdEncoding.EncodeToString(public)}
	}); err != nil {
		t.Fatal(err)
	}
	if err := root.Create(ctx, hooks); err != nil {
		t.Fatal(err)
	}
	return admin, root, func(user string) client.Client {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		return connect(t, config)
	}
}

// keepLedger leaves of the chart's webhooks those that ask the ledger, at another address.
func keepLedger(hooks *unstructured.Unstructured, address func(path string) map[string]any) error {
	all, _, err := unstructured.NestedSlice(hooks.Object, "webhooks")
	if err != nil {
		return err
	}
	var kept []any
	for _, one := range all {
		one := one.(map[string]any)
		path, _, _ := unstructured.NestedString(one, "clientConfig", "service", "path")
		if strings.HasSuffix(path, peerobjects.Path) {
			one["clientConfig"] = address(path)
			kept = append(kept, one)
		}
	}
	hooks.SetResourceVersion("")
	return unstructured.SetNestedSlice(hooks.Object, kept, "webhooks")
}

// TestAttackNH5: with the configuration of the chart, the API server asks about what a peer writes again and again, and about claims that Kubernetes makes for
// it. A peer that is refused for the moment goes on as soon as it may.
func TestAttackNH5(t *testing.T) {
	const size = 256 << 10
	limits := ledger.Limits{Use: ledger.Use{ledger.Bytes: 4 << 20, ledger.NodePorts: 5}, Rate: 128 << 10, Burst: 1 << 20}
	admin, root, as := withLedger(t, limits, "web-rome", "shop-rome")
	ctx, peer := t.Context(), as("system:serviceaccount:liqo-tenant-rome:liqo-peer")
	for _, name := range []string{"web-rome", "shop-rome"} {
		if err := root.Create(ctx, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for name, cluster := range map[string]string{"liqo-tenant-rome": "rome", "liqo-tenant-milan": "milan"} {
		tenant := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"discovery.liqo.io/tenant-namespace": "true", "discovery.liqo.io/cluster-id": cluster}},
		}
		if err := root.Create(ctx, tenant); err != nil {
			t.Fatal(err)
		}
	}
	services := func(namespace string, ports int) *corev1.Service {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ports"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
		for i := range ports {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + i)})
		}
		return service
	}
	kubetest.Eventually(t, "the API server asks the ledger", func() error {
		if err := peer.Create(ctx, services("shop-rome", 6), client.DryRunAll); err == nil ||
			!strings.Contains(err.Error(), "node ports of the peer in this cluster would be 6") {
			return fmt.Errorf("6 node ports: %w", err)
		}
		return nil
	})
	if err := peer.Create(ctx, services("web-rome", 3)); err != nil {
		t.Fatal(err)
	}
	if err := peer.Create(ctx, services("shop-rome", 3)); !apierrors.IsForbidden(err) {
		t.Errorf("3 node ports in each of two namespaces: %v", err)
	}

	// Rewriting. The clients of Kubernetes wait as long as the answer asks for, so each write of this peer succeeds; another client sees the answer.
	text := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web-rome", Name: "text"}}
	if err := peer.Create(ctx, text); err != nil {
		t.Fatal(err)
	}
	began, writes := time.Now(), 12
	for i := range writes {
		text.Data = map[string]string{"x": fmt.Sprint(i) + strings.Repeat("x", size/2)}
		if err := peer.Update(ctx, text); err != nil {
			t.Fatalf("write %d of a peer that waits when it has to: %v", i, err)
		}
	}
	// The first MiB is free, and the rest comes at 128 KiB a second. The object arrives with what the API server adds.
	if least := time.Duration(writes*size/2-(1<<20))*time.Second/(128<<10) - time.Second; time.Since(began) < least {
		t.Errorf("%d writes of 128 KiB took %s, and must take %s with 128 KiB a second after 1 MiB", writes, time.Since(began), least)
	}
	var number atomic.Int64 // what does not change is not written
	request := func(user, namespace string) int {
		body := fmt.Sprintf(`{"data":{"x":%q}}`, fmt.Sprint(number.Add(1))+strings.Repeat("y", size))
		result := rawClient(t, admin, user).Patch(types.MergePatchType).AbsPath("/api/v1/namespaces/" + namespace + "/configmaps/text").Body([]byte(body)).
			MaxRetries(0).Do(ctx)
		code := 0
		result.StatusCode(&code)
		return code
	}
	// Eight at a time, since what a peer may write grows while a slow machine works on one.
	var answers sync.Map
	for refused := false; !refused && ctx.Err() == nil; _, refused = answers.Load(http.StatusTooManyRequests) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { answers.Store(request("system:serviceaccount:liqo-tenant-rome:liqo-peer", "web-rome"), true) })
		}
		all.Wait()
	}
	if _, refused := answers.Load(http.StatusTooManyRequests); !refused {
		t.Error("no write beyond the rate is answered with 429")
	}
	if code := request("system:serviceaccount:liqo-tenant-milan:liqo-peer", "web-rome"); code != http.StatusOK {
		t.Errorf("a write of another peer is answered with %d", code)
	}

	// Claims count, also those of Kubernetes.
	claim := func(name string) *corev1.PersistentVolumeClaim {
		one := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web-rome", Name: name, Annotations: map[string]string{"x": strings.Repeat("x", size-1024)}},
		}
		one.Spec.StorageClassName = new("disk")
		one.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		one.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
		return one
	}
	ephemeral, admitted := as("system:serviceaccount:kube-system:ephemeral-volume-controller"), 0
	for ; admitted < 30; admitted++ {
		if err := ephemeral.Create(ctx, claim(fmt.Sprint("pod-", admitted))); apierrors.IsForbidden(err) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if admitted < 13 || admitted > 16 {
		t.Errorf("%d claims of 256 KiB are made for the pods of a peer that may have 4 MiB", admitted)
	}
}

// rawClient is a client of the API that does not try again if it is asked to.
func rawClient(t *testing.T, admin *rest.Config, user string) *rest.RESTClient {
	t.Helper()
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAttackNH4Down: nothing that the ledger counts is admitted from a peer while the ledger does not answer. Other clients are not asked about.
func TestAttackNH4Down(t *testing.T) {
	ctx, admin, root := installed(t)
	withoutPolicies(t, root) // they refuse an Ingress on their own
	if err := removeWebhooks(ctx, root); err != nil {
		t.Fatal(err)
	}
	hooks := charttest.Find(t, charttest.Render(t), "ValidatingWebhookConfiguration", "liqo").DeepCopy()
	if err := keepLedger(hooks, func(path string) map[string]any {
		return map[string]any{"url": "https://127.0.0.1:1" + path}
	}); err != nil {
		t.Fatal(err)
	}
	if err := root.Create(ctx, hooks); err != nil {
		t.Fatal(err)
	}
	if err := root.Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "web-rome", Labels: map[string]string{"liqo.io/remote-cluster-id": "rome"}},
	}); err != nil {
		t.Fatal(err)
	}
	as := func(user string) client.Client {
		config := rest.CopyConfig(admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		return connect(t, config)
	}
	peer, other := as("system:serviceaccount:liqo-tenant-rome:liqo-peer"), as("administrator")
	at := metav1.ObjectMeta{Namespace: "web-rome", Name: "x"}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: at, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("disk"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
	for _, one := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: at}, &corev1.Secret{ObjectMeta: at}, claim,
		&corev1.Service{ObjectMeta: at, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": map[string]any{"namespace": "web-rome", "name": "x"},
			"spec": map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": "x", "port": map[string]any{"number": int64(80)}}}},
		}},
	} {
		kubetest.Eventually(t, fmt.Sprintf("a %T of a peer is refused", one), func() error {
			err := peer.Create(ctx, one.DeepCopyObject().(client.Object), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
				return fmt.Errorf("%T of a peer: %w", one, err)
			}
			return nil
		})
	}
	if err := other.Create(ctx, &corev1.ConfigMap{ObjectMeta: at}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}
