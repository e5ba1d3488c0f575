// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"liqo.io/liqo/test/env"
)

// compact lets etcd forget the past of a cluster, as it does by itself every few minutes. It is asked through its HTTP gateway.
func compact(t *testing.T, c *env.Cluster) {
	t.Helper()
	asking, err := etcd(c)
	if err != nil {
		t.Fatal(err)
	}
	defer asking.CloseIdleConnections()
	ask := func(path, body string) (revision string) {
		said, err := asking.Post("https://127.0.0.1:2379"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatalf("etcd of %s: %v", c.Name, err)
		}
		defer said.Body.Close()
		var answer struct {
			Header struct {
				Revision string `json:"revision"`
			} `json:"header"`
		}
		if err := json.NewDecoder(said.Body).Decode(&answer); err != nil || said.StatusCode != http.StatusOK || answer.Header.Revision == "" {
			t.Fatalf("etcd of %s answers %s with %s (%v)", c.Name, path, said.Status, err)
		}
		return answer.Header.Revision
	}
	now := ask("/v3/kv/range", `{"key":"AA==","count_only":true}`)
	ask("/v3/kv/compaction", `{"revision":"`+now+`","physical":true}`)
	t.Logf("etcd of %s knows nothing before revision %s", c.Name, now)
}

// etcd is a client that is in the control plane's network, which is that of the first node: etcd listens nowhere else.
func etcd(c *env.Cluster) (*http.Client, error) {
	pki := filepath.Join(filepath.Dir(filepath.Dir(c.Kubeconfig())), "clusters", c.Name, "pki")
	authority, err := os.ReadFile(filepath.Join(pki, "etcd-ca.crt"))
	if err != nil {
		return nil, err
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver-etcd-client.crt"), filepath.Join(pki, "apiserver-etcd-client.key"))
	if err != nil {
		return nil, fmt.Errorf("client certificate for etcd of %s: %w", c.Name, err)
	}
	dial := func(ctx context.Context, kind, address string) (net.Conn, error) {
		runtime.LockOSThread() // and never unlocked if the thread cannot go home: it ends with this goroutine then
		home, err := netns.Get()
		if err != nil {
			return nil, err
		}
		defer home.Close()
		inside, err := netns.GetFromName("lpg-" + c.Nodes[0].Name)
		if err != nil {
			return nil, err
		}
		defer inside.Close()
		if err := netns.Set(inside); err != nil {
			return nil, err
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, kind, address)
		if back := netns.Set(home); back != nil {
			return nil, back
		}
		runtime.UnlockOSThread()
		return connection, err
	}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: known, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12},
	}}, nil
}
