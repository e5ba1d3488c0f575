// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/report"
)

// TestAttackL9: what answers at the address of a gateway without its key, with TLS or without, is not believed, and the status states it; the gateway
// itself is. A gateway of an earlier version, which has no report over TLS, is followed without: its pod decides that, not what answers.
func TestAttackL9(t *testing.T) {
	gateway, other := [keyring.Size]byte{1}, [keyring.Size]byte{2}
	for name, row := range map[string]struct {
		earlier bool
		serves  *[keyring.Size]byte // nil: without TLS
		// believed, or known to have another key.
		believed, unproven bool
	}{
		"the gateway":                     {false, &gateway, true, false},
		"another with a certificate":      {false, &other, false, true},
		"another without TLS":             {false, nil, false, false},
		"a gateway of an earlier version": {true, nil, true, false},
		"another with TLS where none is":  {true, &other, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gateway", UID: "1"}, Status: corev1.PodStatus{PodIP: "192.0.2.1"}}
				if !row.earlier {
					pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: report.SecurePortName}}}}
				}
				g, attempts := answeredBy(t, row.serves, gateway)
				g.follow(t.Context(), &pod, 0)
				// Several attempts, or one that lasts.
				wait(g, func(o report.Observation) bool { return isUp(o) || attempts.Load() > 5 })
				synctest.Wait()
				if o := g.Observations()[0]; isUp(o) != row.believed || o.Unproven != row.unproven {
					t.Errorf("believed: %t, known to have another key: %t", isUp(o), o.Unproven)
				}
			})
		})
	}
}

// answeredBy returns gateways whose address is answered with a key, or without TLS, while the gateway has another key, and the number of attempts.
func answeredBy(t *testing.T, serves *[keyring.Size]byte, key [keyring.Size]byte) (*Reader, *atomic.Int32) {
	t.Helper()
	network := &pipes{arrived: make(chan net.Conn), closed: make(chan struct{})}
	var listener net.Listener = network
	if serves != nil {
		certificate, err := report.Certificate(*serves)
		if err != nil {
			t.Fatal(err)
		}
		listener = tls.NewListener(network, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}})
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(line(true)))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	attempts := &atomic.Int32{}
	g := &Reader{port: 1, securePort: 2, Updates: newUpdates(), followers: map[string]*follower{}}
	g.connect = through(func(ctx context.Context, kind, address string) (net.Conn, error) {
		if attempts.Add(1) > 5 {
			g.Updates.add(report.EveryPeer) // wakes the test
		}
		return network.dial(ctx, kind, address)
	})
	g.key = func(context.Context, int) ([keyring.Size]byte, error) { return key, nil }
	t.Cleanup(func() {
		g.stopAll()
		_ = server.Close()
		<-served
	})
	return g, attempts
}

// TestKeyOf: the key that proves a gateway is the one that the gateway has, of its lane; without one, no report is read.
func TestKeyOf(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: keyring.SecretName}}
	empty := fake.NewFakeClient(secret.DeepCopy())
	if _, err := keyOf(t.Context(), empty, "liqo", 0); err == nil || !strings.Contains(err.Error(), "no key that proves the gateway of lane 0") {
		t.Error(err)
	}
	r, err := keyring.Read(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Fill(rand.Reader); err != nil {
		t.Fatal(err)
	}
	r.Write(secret)
	all, err := keyring.Keys(secret)
	if err != nil {
		t.Fatal(err)
	}
	for lane, want := range all {
		if got, err := keyOf(t.Context(), fake.NewFakeClient(secret), "liqo", lane); err != nil || got != want.Current {
			t.Errorf("lane %d: another key, %v", lane, err)
		}
	}
}
