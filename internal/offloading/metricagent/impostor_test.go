// SPDX-License-Identifier: Apache-2.0

package metricagent

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"liqo.io/liqo/internal/offloading/serving"
)

// TestAttackL9: a pod that answers at the agent's address, with a certificate of its own for the agent's name, gets no request of the API server, so it learns
// neither who asks for metrics nor decides what peers read. The agent itself serves before and after, with the certificate of the chart.
func TestAttackL9(t *testing.T) {
	t.Parallel()
	b := newEnv(t, true)
	certificate, err := serving.New(serving.Names{Common: "liqo-metric-agent", DNS: []string{"liqo-metric-agent.liqo.svc"}})
	b.Must(err)
	var dialed, asked atomic.Int32
	impostor := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.liqo.io/v1alpha1","resources":[]}`))
		}),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			dialed.Add(1)
			return certificate.Get(hello)
		}},
	}
	at, err := net.Listen("tcp", ":0")
	b.Must(err)
	go func() { _ = impostor.ServeTLS(at, "", "") }()
	t.Cleanup(func() { _ = impostor.Close() })

	b.answers(at.Addr().(*net.TCPAddr).Port)
	var code int
	var text string
	b.Until("the API server asks the impostor", func() bool {
		code, text = b.get(b.admin, root, false)
		return dialed.Load() > 0
	})
	code, text = b.get(b.admin, root, false)
	if code != http.StatusServiceUnavailable || asked.Load() > 0 {
		t.Errorf("an impostor gets %d requests, and the API server answers with %d %s", asked.Load(), code, strings.TrimSpace(text))
	}

	b.answers(b.port)
	b.Until("the agent serves again", func() bool {
		code, text = b.get(b.admin, root, false)
		return code == http.StatusOK && strings.Contains(text, "scrape/metrics")
	})
}
