// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
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

	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	peeringauth "liqo.io/liqo/internal/peering/auth"
	authclient "liqo.io/liqo/internal/peering/auth/client"
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
	if key == nil || key.Curve != elliptic.P256() || certificate.IsCA ||
		!certificate.NotBefore.Before(now.Add(-24*time.Hour)) || !certificate.NotAfter.After(now.AddDate(9, 0, 0)) {
		t.Errorf("%T, CA %v, from %s to %s", certificate.PublicKey, certificate.IsCA, certificate.NotBefore, certificate.NotAfter)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", kubetest.OwnAddress())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// get retries until the server answers.
func get(t *testing.T, client *http.Client, url string) (answer string) {
	t.Helper()
	kubetest.Eventually(t, "an answer of "+url, func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		answer = response.Status[:3] + " " + string(text)
		return err
	})
	return answer
}

// TestAuthRole runs the role as a whole, on a real API server.
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
		t.Errorf("ready without a key: %s", text)
	}
	keys := clusterkey.Keys{Current: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	for _, secret := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Name: peeringauth.SharedTokenSecret}, StringData: map[string]string{"token": "the-token-of-milan"}},
		{ObjectMeta: metav1.ObjectMeta{Name: clusterkey.Secret}, Data: keys.Data()},
	} {
		if _, err := core.Secrets("liqo").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if text := get(t, http.DefaultClient, health+"/readyz"); text != "200 ok\n" {
		t.Error(text)
	}
	client, err := authclient.New("https://"+o.address, authclient.Options{InsecureSkipTLSVerify: true})
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
	case <-time.After(kubetest.InTime):
		t.Error("does not end")
	}
}
