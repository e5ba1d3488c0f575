// SPDX-License-Identifier: Apache-2.0

package metricagent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// TestSelfSignedKubelet: kubelets of kubeadm and kind create their serving certificates with this function of client-go. The
// agent sends its token to such a kubelet only with --kubelet-insecure-tls, which liqoctl sets for these clusters.
func TestSelfSignedKubelet(t *testing.T) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("worker", []net.IP{net.ParseIP("127.0.0.1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	var tokens []string
	kubelet := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
	}))
	kubelet.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	kubelet.Config.ErrorLog = log.New(io.Discard, "", 0)
	kubelet.StartTLS()
	defer kubelet.Close()

	authority, _, err := certutil.GenerateSelfSignedCertKey("kubernetes", nil, []string{"kubernetes"})
	if err != nil {
		t.Fatal(err)
	}
	home := &rest.Config{Host: "https://kubernetes.default.svc", BearerToken: "agent", TLSClientConfig: rest.TLSClientConfig{CAData: authority}}
	get := func(insecure bool) error {
		t.Helper()
		transport, err := rest.TransportFor(KubeletConfig(home, insecure))
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, kubelet.URL+"/metrics/resource", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	var unknown x509.UnknownAuthorityError
	if err := get(false); !errors.As(err, &unknown) || len(tokens) != 0 {
		t.Errorf("verified: %v, %d requests arrived; want an unknown authority and none", err, len(tokens))
	}
	if err := get(true); err != nil || len(tokens) != 1 || tokens[0] != "Bearer agent" {
		t.Errorf("not verified: %v, tokens %q", err, tokens)
	}
}
