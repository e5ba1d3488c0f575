// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestAttackH4: a client that does not know the secret segment of the paths reaches no webhook, whatever it posts.
func TestAttackH4(t *testing.T) {
	const secret = "0123456789abcdefghijklmnopqrstuv"
	public, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	must(t, err)
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	write("tls.crt", public)
	write("tls.key", private)
	_, port, err := net.SplitHostPort(freeAddress(t))
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	for _, short := range []string{"", "short\n"} {
		if write(pathFile, []byte(short)); short == "" {
			must(t, os.Remove(filepath.Join(dir, pathFile)))
		}
		if _, err := newWebhooks(number, dir); err == nil || strings.Contains(err.Error(), "short\n") {
			t.Errorf("a server with the segment %q: %v", short, err)
		}
	}
	write(pathFile, []byte(secret+"\n"))
	server, err := newWebhooks(number, dir)
	must(t, err)
	calls := 0
	server.Register("/mutate/pod", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
	kubetest.Start(t, "webhooks", server.Start)
	kubetest.Eventually(t, "the server answers", func() error { return server.StartedChecker()(nil) })
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	} //nolint:gosec // the certificate is not what is tested
	post := func(path string) int {
		t.Helper()
		response, err := client.Post(
			"https://127.0.0.1:"+port+path, "application/json",
			strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"x"}}`),
		)
		must(t, err)
		must(t, response.Body.Close())
		return response.StatusCode
	}
	for _, path := range []string{
		"/mutate/pod", "//mutate/pod", "/x/mutate/pod", "/{segment}/mutate/pod", "/%7Bsegment%7D/mutate/pod", "/" + secret, "/" + secret + "/",
		"/" + secret + "/other",
		"/" + secret[1:] + "/mutate/pod", "/" + secret + "x/mutate/pod", "/" + strings.ToUpper(secret) + "/mutate/pod",
		"/x/../" + secret[:8] + "/mutate/pod", "/metrics", "/",
	} {
		if status := post(path); status != http.StatusNotFound || calls > 0 {
			t.Fatalf("POST %s: status %d, %d calls reached the webhook", path, status, calls)
		}
	}
	if status := post("/" + secret + "/mutate/pod"); status != http.StatusOK || calls != 1 {
		t.Errorf("the right path: status %d, %d calls", status, calls)
	}
	next := strings.Repeat("z", leastSegment)
	write(pathFile, []byte(next))
	if old, now := post("/"+secret+"/mutate/pod"), post("/"+next+"/mutate/pod"); old != http.StatusNotFound || now != http.StatusOK {
		t.Errorf("after the segment changed: status %d with the old one, %d with the new one", old, now)
	}
}
