// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreconfig "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", kubetest.OwnAddress())
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestManager(t *testing.T) {
	config := kubetest.Cluster(t)
	admin, err := client.New(config, client.Options{})
	must(t, err)
	for _, name := range []string{"liqo", "watched", "elsewhere"} {
		must(t, admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		must(t, admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "secret"}}))
	}
	must(t, admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "elsewhere", Name: "account", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "kept": "yes"},
	}}))
	account := coreconfig.ServiceAccount("account", "elsewhere").WithLabels(map[string]string{"a": "b"})
	must(t, admin.Apply(t.Context(), account, client.FieldOwner("liqo-test")))

	health := freeAddress(t)
	mgr, err := New(config, Options{
		Scheme: clientgoscheme.Scheme, HealthAddress: health,
		LeaderElection: true, LeaderElectionID: "test.liqo.io", Namespace: "liqo", SecretNamespaces: []string{"watched"},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	}()
	for _, path := range []string{"/healthz", "/readyz"} {
		kubetest.Eventually(t, path, func() error {
			response, err := http.Get("http://" + health + path)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return errors.New(response.Status)
			}
			return nil
		})
	}
	select {
	case <-mgr.Elected():
	case <-time.After(30 * time.Second):
		t.Fatal("not elected")
	}

	// The cache: trimmed, and Secrets from named namespaces only. The client: any Secret it may read.
	got := &corev1.ServiceAccount{}
	must(t, mgr.GetClient().Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "account"}, got))
	if len(got.ManagedFields) != 1 || got.ManagedFields[0].Manager != "liqo-test" || len(got.Annotations) != 1 {
		t.Errorf("in the cache: managed fields %+v, annotations %v", got.ManagedFields, got.Annotations)
	}
	for namespace, watched := range map[string]bool{"liqo": true, "watched": true, "elsewhere": false} {
		key := client.ObjectKey{Namespace: namespace, Name: "secret"}
		if err := mgr.GetCache().Get(t.Context(), key, &corev1.Secret{}); (err == nil) != watched {
			t.Errorf("from the cache, Secret in %s: %v", namespace, err)
		}
		if err := mgr.GetClient().Get(t.Context(), key, &corev1.Secret{}); err != nil {
			t.Errorf("with the client, Secret in %s: %v", namespace, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, options := range map[string]Options{
		"no scheme":                         {},
		"election without a lease name":     {Scheme: runtime.NewScheme(), LeaderElection: true, Namespace: "liqo"},
		"election without namespace for it": {Scheme: runtime.NewScheme(), LeaderElection: true, LeaderElectionID: "x"},
	} {
		if _, err := New(nil, options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCallersCacheOptionsWin(t *testing.T) {
	own := cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{"mine": {}}}}}
	got := caches(Options{Namespace: "liqo", Cache: own})
	if len(got.ByObject) != 2 || got.DefaultTransform == nil {
		t.Fatalf("got %+v", got)
	}
	for object, by := range got.ByObject {
		_, secret := object.(*corev1.Secret)
		if _, mine := by.Namespaces["mine"]; mine != secret {
			t.Errorf("%T: namespaces %v", object, by.Namespaces)
		}
	}
	if len(own.ByObject) != 1 {
		t.Error("the caller's options were changed")
	}
}
