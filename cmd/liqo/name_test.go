// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/cmd/liqo/kubelet"
	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/version"
)

// TestProcessMetrics: Prometheus finds the usual metrics of a process on the port of the virtual node, as text.
func TestProcessMetrics(t *testing.T) {
	recorder := httptest.NewRecorder()
	kubelet.ProcessMetrics().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := recorder.Body.String()
	for _, want := range []string{"go_goroutines ", "process_resident_memory_bytes ", "process_start_time_seconds "} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s in %.300s", want, text)
		}
	}
	for _, reserved := range []string{"kubelet_", "kubernetes_"} {
		if strings.Contains(text, "\n"+reserved) {
			t.Errorf("%s is on the page twice", reserved)
		}
	}
}

// noOptions are the flags of a role that has none.
type noOptions struct{}

func (noOptions) Register(*pflag.FlagSet) {}
func (noOptions) Validate() error         { return nil }

// TestRolesNameThemselves: audit logs and managed fields of the API server show which role it was, also where a role makes its own connection, as the
// virtual kubelet does.
func TestRolesNameThemselves(t *testing.T) {
	seen := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.UserAgent() }))
	defer server.Close()
	home := func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil }
	cmd := role.Command(noOptions{}, home, func(_ *cobra.Command, cfg *rest.Config) error {
		connection, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return err
		}
		response, err := connection.Get(server.URL)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	cmd.Use = "virtual-kubelet"
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := <-seen, "liqo-virtual-kubelet/"+version.Version; got != want {
		t.Errorf("the API server sees %q, want %q", got, want)
	}
}
