// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/internal/kube/kubetest"
	peeringauth "liqo.io/liqo/internal/peering/auth"
)

const authTestID = "11111111-2222-4333-8444-555555555555"

func TestAuthOptions(t *testing.T) {
	who := []string{"--cluster-id=" + authTestID, "--cluster-name=milan"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{who, ""},
		{nil, "--cluster-id"},
		{append([]string{"--namespace="}, who...), "--namespace"},
		{append([]string{"--enable-tls", "--cert-path=a", "--key-path=b"}, who...), ""},
		{append([]string{"--enable-tls", "--cert-path=a"}, who...), "--key-path"},
		{append([]string{"--cert-path=a", "--key-path=b"}, who...), "--enable-tls"},
		{append([]string{"--advertise-api-server-address=192.0.2.1:6443"}, who...), ""},
		{append([]string{"--advertise-api-server-address=http://192.0.2.1"}, who...), "--advertise-api-server-address"},
		{append([]string{"--resync-period=1m"}, who...), ""},
	} {
		var o authOptions
		flags := pflag.NewFlagSet("auth", pflag.ContinueOnError)
		flags.SetOutput(io.Discard)
		o.Register(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
		if err := o.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.args, err, c.want)
		}
	}
}

func TestAuthMakesACertificate(t *testing.T) {
	t.Setenv("POD_IP", "10.1.2.3")
	now := time.Now()
	made, err := selfSignedAuth("liqo", now)
	if err != nil {
		t.Fatal(err)
	}
	certificate := made.Leaf
	for _, name := range []string{"liqo-auth", "liqo-auth.liqo.svc", "localhost", "10.1.2.3", "127.0.0.1"} {
		if err := certificate.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	key, _ := certificate.PublicKey.(*ecdsa.PublicKey)
	if key == nil || key.Curve != elliptic.P256() || certificate.IsCA || !certificate.NotBefore.Before(now.Add(-24*time.Hour)) || !certificate.NotAfter.After(now.AddDate(9, 0, 0)) {
		t.Errorf("%T, CA %v, from %s to %s", certificate.PublicKey, certificate.IsCA, certificate.NotBefore, certificate.NotAfter)
	}
}

// What is being answered when the process is told to end, is answered.
func TestAuthEndsInPeace(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	address := freeAddress(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = io.WriteString(w, "done") // the client checks
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveAuth(ctx, authHealth(address, handler)) }()
	said := make(chan string, 1)
	go func() { said <- get(t, http.DefaultClient, "http://"+address) }()
	<-asked
	cancel()
	close(answer)
	if text := <-said; text != "200 done" {
		t.Error(text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAuthListenerIsBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	listener := newAuthListener(inner, 1, 1)
	for range 2 {
		client, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}
	first, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			err = connection.Close()
		}
		second <- err
	}()
	select {
	case <-second:
		t.Error("two connections in one slot")
	case <-time.After(50 * time.Millisecond):
	}
	_, _ = first.Close(), first.Close() // twice, as servers do, frees one slot
	if err := <-second; err != nil {
		t.Error(err)
	}
	if len(listener.slots) != 0 {
		t.Error("a slot is lost")
	}
}

// TestAuthListenerIsFair: an address that holds connections leaves some for others.
func TestAuthListenerIsFair(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	listener := newAuthListener(inner, 3, 1)
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- connection
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		connection, err := dialer.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		return connection
	}
	dial("127.0.0.1")
	first := <-accepted
	refused := dial("127.0.0.1")
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a second connection from the same address is served")
	}
	dial("127.0.0.2")
	<-accepted
	first.Close()
	dial("127.0.0.1")
	<-accepted
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// get tries until somebody answers.
func get(t *testing.T, client *http.Client, url string) string {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		response, err := client.Get(url)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // it was read
		if err != nil {
			t.Error(err)
		}
		return response.Status[:3] + " " + string(text)
	}
	return "nobody answers at " + url
}

// The role as a whole, on a real API server.
func TestAuthRole(t *testing.T) {
	config := kubetest.Cluster(t)
	core := corev1client.NewForConfigOrDie(config)
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := authOptions{
		namespace: "liqo", clusterID: authTestID, clusterName: "milan", address: freeAddress(t), healthAddress: freeAddress(t), enableTLS: true, enableAuth: true,
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- runAuth(ctx, config, o) }()

	health := "http://" + o.healthAddress
	if text := get(t, http.DefaultClient, health+"/healthz"); text != "200 ok\n" {
		t.Error(text)
	}
	if text := get(t, http.DefaultClient, health+"/readyz"); !strings.HasPrefix(text, "503 ") {
		t.Errorf("ready without a token: %s", text)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "auth-token"}, StringData: map[string]string{"token": "token-of-milan"}}
	if _, err := core.Secrets("liqo").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if text := get(t, http.DefaultClient, health+"/readyz"); text != "200 ok\n" {
		t.Error(text)
	}
	client, err := peeringauth.NewClient("https://"+o.address, peeringauth.ClientOptions{InsecureSkipTLSVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := client.IDs(t.Context())
	if err != nil || ids.ClusterID != authTestID || !ids.TLS.SelfSigned {
		t.Errorf("%+v, %v", ids, err)
	}
	client.Close()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("does not end")
	}
}
