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

// compact removes old revisions from the etcd of a cluster, as the API server requests every few minutes. It uses etcd's HTTP gateway.
func compact(t *testing.T, c *env.Cluster) {
	t.Helper()
	client, err := etcd(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	post := func(path, body string) (revision string) {
		response, err := client.Post("https://127.0.0.1:2379"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatalf("etcd of %s: %v", c.Name, err)
		}
		defer response.Body.Close()
		var answer struct {
			Header struct {
				Revision string `json:"revision"`
			} `json:"header"`
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK || answer.Header.Revision == "" {
			t.Fatalf("etcd of %s answers %s with %s (%v)", c.Name, path, response.Status, err)
		}
		return answer.Header.Revision
	}
	now := post("/v3/kv/range", `{"key":"AA==","count_only":true}`)
	post("/v3/kv/compaction", `{"revision":"`+now+`","physical":true}`)
	t.Logf("etcd of %s has no revision before %s", c.Name, now)
}

// etcd returns a client that connects from the network namespace of the first node, because etcd listens on its loopback address only.
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
		runtime.LockOSThread() // stays locked if the thread cannot return to its namespace: the thread then ends with this goroutine
		original, err := netns.Get()
		if err != nil {
			return nil, err
		}
		defer original.Close()
		inside, err := netns.GetFromName("lpg-" + c.Nodes[0].Name)
		if err != nil {
			return nil, err
		}
		defer inside.Close()
		if err := netns.Set(inside); err != nil {
			return nil, err
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, kind, address)
		if restored := netns.Set(original); restored != nil {
			return nil, restored
		}
		runtime.UnlockOSThread()
		return connection, err
	}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: known, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12},
	}}, nil
}
