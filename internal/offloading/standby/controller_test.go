// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/domain"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// TestStandby: with the rights in its markers, the controller follows the DNS of the cluster; new pods use our name server only while the endpoints
// to fall back on are there; and nothing is written twice.
func TestStandby(t *testing.T) {
	admin := kubetest.Cluster(t)
	b := &kubetest.Env{T: t}
	var err error
	b.Client, err = client.New(admin, client.Options{Scheme: clientgoscheme.Scheme})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}})
	rules := b.RBACMarkers("controller.go")
	b.Bind("standby-test", "", rules[""])
	b.Bind("standby-test", "liqo", rules["liqo"])
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate.UserName = "standby-test"
	var writes atomic.Int32
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	options := Options{
		Service: types.NamespacedName{Namespace: "liqo", Name: "liqo-dns"}, DNS: types.NamespacedName{Namespace: "kube-system", Name: "kube-dns"},
		Cluster: domain.Resolver{Domain: "cluster.local", Searches: []string{"compute.internal"}},
	}
	run := func() (*Standby, func()) {
		mgr, err := manager.New(cfg, manager.Options{Scheme: clientgoscheme.Scheme, SkipNameValidation: true})
		b.Must(err)
		made, err := Setup(mgr, options)
		b.Must(err)
		if _, err := made.Settings(); err == nil {
			t.Error("the settings are known before anything was read")
		}
		return made, kubetest.Start(t, "manager", mgr.Start)
	}
	standby, stop := run()
	server := func(from *Standby) string {
		settings, err := from.Settings()
		if err != nil {
			return "unknown"
		}
		if !settings.Server.IsValid() {
			return "none"
		}
		if settings.Domain != "cluster.local" || !slices.Equal(settings.Searches, options.Cluster.Searches) {
			t.Errorf("the settings are %+v", settings)
		}
		return settings.Server.String()
	}
	b.Until("it is known that there is no Service", func() bool { return server(standby) == "none" })

	ours := service("")
	ours.UID = ""
	b.Make(ours)
	its := dns(53, "10.0.0.1")
	its.ObjectMeta = metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns-abc", Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns"}}
	b.Make(&its)
	b.Until("new pods use our name server", func() bool { return server(standby) == ours.Spec.ClusterIP })
	kept := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: sliceName}}
	endpoints := func() (all []string) {
		if b.Get(t.Context(), client.ObjectKeyFromObject(kept), kept) != nil {
			return nil
		}
		for _, endpoint := range kept.Endpoints {
			all = append(all, endpoint.Addresses...)
		}
		return all
	}
	if got := endpoints(); !slices.Equal(got, []string{"10.0.0.1"}) {
		t.Errorf("the standby is %v", got)
	}
	b.Edit(&its, func() {
		its.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}, {Addresses: []string{"10.0.0.3"}}}
	})
	b.Until("the standby follows", func() bool { return slices.Equal(endpoints(), []string{"10.0.0.2", "10.0.0.3"}) })
	stop()

	before := writes.Load()
	standby, _ = run()
	b.Until("it is known again", func() bool { return server(standby) == ours.Spec.ClusterIP })
	if now := writes.Load(); now != before {
		t.Errorf("%d writes although nothing has changed", now-before)
	}
	b.Must(b.Delete(t.Context(), &its))
	b.Must(b.Delete(t.Context(), ours))
	b.Until("pods use the DNS of the cluster again", func() bool { return server(standby) == "none" })
	if got := endpoints(); !slices.Equal(got, []string{"10.0.0.2", "10.0.0.3"}) {
		t.Errorf("endpoints that were known were removed: %v", got)
	}
}
