// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/scheme"
)

// TestDNS: the process is ready once it knows the pods of peers, answers them, and still answers for a while when it is asked to end. Without a
// domain it does not start.
func TestDNS(t *testing.T) {
	admin := kubetest.Cluster(t)
	_, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{"../../deployments/liqo/crds/virtualkubelet.liqo.io_namespacemaps.yaml"},
	})
	must(t, err)
	scheme, err := scheme.All()
	must(t, err)
	b := &kubetest.Env{T: t}
	b.Client, err = client.New(admin, client.Options{Scheme: scheme})
	must(t, err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})
	b.Make(&vkv1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant", Name: "map", Labels: map[string]string{labels.Replicated: "true"}, Annotations: map[string]string{labels.ClusterDomain: "rome.example"},
	}})
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop-rome", Labels: map[string]string{labels.RemoteClusterID: "rome"},
		Annotations: map[string]string{labels.ManagedByNamespaceMap: "tenant/map", labels.OriginalName: "shop"},
	}})
	file := filepath.Join(t.TempDir(), "resolv.conf")
	must(t, os.WriteFile(file, []byte("search liqo.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.0.0.1\n"), 0o600))

	o := &dnsOptions{address: freeAddress(t), healthAddress: freeAddress(t), metricsAddress: freeAddress(t), namespace: "liqo", resolvConf: file}
	must(t, o.Validate())
	stop := kubetest.Start(t, "name server", func(ctx context.Context) error { return runDNS(ctx, admin, o) })
	b.Until("the process is ready", func() bool {
		response, err := http.Get("http://" + o.healthAddress + "/readyz")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
	// The only peer has no Service of that name here, which needs no question to the DNS of the cluster.
	asks := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, o.address)
	}}
	b.Until("it answers", func() bool {
		_, err := asks.LookupHost(t.Context(), "web.prod.svc.rome.example.")
		missing := (*net.DNSError)(nil)
		return errors.As(err, &missing) && missing.IsNotFound
	})
	b.Until("the metrics have it", func() bool {
		response, err := http.Get("http://" + o.metricsAddress + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return err == nil && regexp.MustCompile(`liqo_dns_questions_total\{network="udp",outcome="absent"\} [1-9]`).Match(text) &&
			strings.Contains(string(text), "liqo_dns_question_duration_seconds_bucket")
	})
	stop()

	must(t, os.WriteFile(file, []byte("search example.com\nnameserver 192.0.2.1\n"), 0o600))
	if err := runDNS(t.Context(), admin, o); err == nil || !strings.Contains(err.Error(), "search path") {
		t.Errorf("without a domain: %v", err)
	}
}
