// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// The attacks of a hostileServer.
const (
	endless = "answers without end"
	bombs   = "quantities that take long to compute"
)

// hostileServer is what a hostile provider gives to its consumers as its API server. It forwards what it does not attack with.
type hostileServer struct {
	forward http.Handler
	server  *httptest.Server

	mu      sync.Mutex
	attack  string
	answers int
}

// set begins an attack, or ends it with the empty string. All open connections end, so that watches start again.
func (h *hostileServer) set(attack string) {
	h.mu.Lock()
	h.attack, h.answers = attack, 0
	h.mu.Unlock()
	h.server.CloseClientConnections()
}

// attacks reports whether an attack is on.
func (h *hostileServer) attacks(with string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attack == with
}

func (h *hostileServer) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers++
}

func (h *hostileServer) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answers
}

func (h *hostileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !h.attacks(endless) {
		h.forward.ServeHTTP(w, r)
		return
	}
	h.answered()
	w.Header().Set("Content-Type", "application/json")
	part := bytes.Repeat([]byte("x"), 64<<10)
	for {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

var granted = regexp.MustCompile(`"(cpu|memory|pods|ephemeral-storage)":"[^"]*"`)

// bomb replaces quantities in ResourceSlices.
func (h *hostileServer) bomb(response *http.Response) error {
	if !strings.Contains(response.Request.URL.Path, "/resourceslices") || !h.attacks(bombs) {
		return nil
	}
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	from := response.Body
	to, into := io.Pipe()
	go func() { // a watch is a line for each event, a list one line
		lines := bufio.NewReader(from)
		for {
			line, err := lines.ReadBytes('\n')
			if granted.Match(line) {
				h.answered()
			}
			if _, failed := into.Write(granted.ReplaceAll(line, []byte(`"$1":"1e999999999"`))); err != nil || failed != nil {
				into.CloseWithError(err)
				return
			}
		}
	}()
	response.Body = joined{to, from}
	return nil
}

// joined reads from one, and closes both.
type joined struct {
	io.ReadCloser
	other io.Closer
}

func (b joined) Close() error {
	_ = b.other.Close()
	return b.ReadCloser.Close()
}

// newHostileServer listens where the consumer reaches it, with a certificate of the provider's authority.
func newHostileServer(t *testing.T, consumer, provider *env.Cluster) *hostileServer {
	t.Helper()
	listener := listen(t, consumer)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(provider.Config()))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(provider.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	h := &hostileServer{}
	h.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Accept-Encoding", "identity")
		},
		ModifyResponse: h.bomb, FlushInterval: -1, Transport: transport,
	}
	certificate := certify(t, provider, listener.Addr().(*net.TCPAddr).IP)
	h.server = serve(t, listener, h, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	return h
}

// certify signs a serving certificate with the authority of a cluster.
func certify(t *testing.T, c *env.Cluster, address net.IP) tls.Certificate {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pki := filepath.Join(filepath.Dir(c.Kubeconfig()), "..", "clusters", c.Name, "pki")
	authority, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	must(err)
	parent, err := x509.ParseCertificate(authority.Certificate[0])
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	signed, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{address}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, parent, key.Public(), authority.PrivateKey)
	must(err)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}
}

// restarts counts those of our containers in a cluster.
func restarts(t *testing.T, c *env.Cluster) (sum int32) {
	t.Helper()
	for _, namespace := range append(c.Tenants(t), "liqo") {
		pods, err := c.Pods(namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			sum += pod.Restarts
		}
	}
	return sum
}

// attackM7: a provider answers without end, grants quantities that take long to compute, and fails every pod. The consumer shows it, goes on, and recovers.
func attackM7(t *testing.T) {
	const namespace = "m7"
	clusters.NeedsPlayground(t, "the key of the provider's authority")
	h := newHostileServer(t, rome, milan)
	milan.Install(t, "--set", "apiServer.address="+h.server.URL)
	t.Cleanup(func() {
		notPeered(t)
		milan.Install(t, "--reset-values")
		env.Healthy(t, milan)
	})
	env.Eventually(t, env.Hang, "the authentication service with the former address is gone", func() (string, bool) {
		all := milan.Kubectl(t, "-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/name=auth", "-o", "name")
		return all, len(strings.Fields(all)) == 1
	})
	rome.Peer(t, milan)
	if _, address, _ := identity(t, rome, milan); address != h.server.URL {
		t.Fatalf("the consumer uses %s, want %s", address, h.server.URL)
	}
	rome.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s") })
	rome.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
	remote := strings.TrimSpace(rome.Kubectl(t, "-n", namespace, "get", "namespaceoffloadings", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}"))
	apply(t, namespace, offloaded)
	ready := func() {
		t.Helper()
		rome.NodeReady(t, milan)
		rome.Kubectl(t, "-n", namespace, "wait", "pod/runs", "--for=condition=Ready", "--timeout=180s")
	}
	ready()
	uid := rome.Kubectl(t, "-n", namespace, "get", "pod", "runs", "-o", "jsonpath={.metadata.uid}")
	before := restarts(t, rome)

	h.set(endless)
	env.Eventually(t, env.Hang, "the virtual node is NotReady", func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		status, message := env.Readiness(node)
		return fmt.Sprintf("%s %s, %d endless answers", status, message, h.count()), status != corev1.ConditionTrue && h.count() > 20
	})
	h.set("")
	ready()

	amounts := func() string {
		t.Helper()
		node, err := rome.VirtualNode(milan)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(node.Status.Allocatable)
	}
	granted := amounts()
	share := func(percentage string) {
		t.Helper()
		milan.Kubectl(t, "-n", "liqo", "patch", "configmap", "liqo-resource-sharing", "--type=merge", "-p", `{"data":{"percentage":"`+percentage+`"}}`)
	}
	usual := milan.Kubectl(t, "-n", "liqo", "get", "configmap", "liqo-resource-sharing", "-o", "jsonpath={.data.percentage}")
	h.set(bombs)
	seen := h.count()
	for _, percentage := range []string{"30", "31"} {
		share(percentage)
		env.Eventually(t, env.Hang, "the consumer has read the quantities", func() (string, bool) { return fmt.Sprint(h.count()), h.count() > seen })
		seen = h.count()
	}
	ready() // one more round through everything that reads them
	if now := amounts(); len(now) > 10*len(granted) {
		t.Errorf("the virtual node has %.500s", now)
	}
	h.set("")
	share("32") // what the consumer has read of the former versions, it does not read again
	env.Eventually(t, env.Hang, "the virtual node has what is granted", func() (string, bool) { return amounts(), amounts() != granted })
	share(usual)
	env.Eventually(t, env.Hang, "the virtual node has what was granted before", func() (string, bool) { return amounts(), amounts() == granted })
	ready()

	failed := failAll(t, namespace, remote)
	if now := rome.Kubectl(t, "-n", namespace, "get", "pod", "runs", "-o", "jsonpath={.metadata.uid}"); now != uid {
		t.Errorf("the pod was replaced: %s, before %s", now, uid)
	}
	if now := restarts(t, rome); now != before {
		t.Errorf("processes of the consumer have restarted %d times", now-before)
	}
	clusters.Measure("a provider that fails all pods", "no more pods after %d have failed", failed)
}

const failing = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: fails}
spec:
  replicas: 10
  selector: {matchLabels: {app: fails}}
  template:
    metadata: {labels: {app: fails}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: server, image: "localhost/traffic:dev", imagePullPolicy: Never, args: [serve]}
`

// failAll fails each pod of a Deployment at the provider as it comes, until the virtual node gets no more pods. It returns how many have failed.
func failAll(t *testing.T, namespace, remote string) (failed int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow(ctx, t, milan, &corev1.PodList{}, func(object client.Object) {
		pod := object.(*corev1.Pod)
		if pod.Status.Phase == corev1.PodFailed {
			return
		}
		pod.Status.Phase = corev1.PodFailed
		_ = milan.API.Status().Update(ctx, pod) // after a conflict, the next event follows
	}, client.InNamespace(remote), client.MatchingLabels{"app": "fails"})
	apply(t, namespace, failing)
	env.Eventually(t, env.Hang, "the virtual node gets no more pods", func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		for _, condition := range node.Status.Conditions {
			if condition.Reason == "PodsFailInALoop" && condition.Status == corev1.ConditionTrue {
				return condition.Message, strings.Contains(fmt.Sprint(node.Spec.Taints), corev1.TaintNodePIDPressure)
			}
		}
		return fmt.Sprint(node.Status.Conditions), false
	})
	env.Eventually(t, env.Hang, "pods wait", func() (string, bool) {
		waiting := rome.Kubectl(t, "-n", namespace, "get", "pods", "-l", "app=fails", "--field-selector", "spec.nodeName=,status.phase=Pending", "-o", "name")
		return waiting, len(strings.Fields(waiting)) == 10
	})
	failed = len(strings.Fields(rome.Kubectl(t, "-n", namespace, "get", "pods", "-l", "app=fails", "--field-selector", "status.phase=Failed", "-o", "name")))
	if failed > 100 { // fifty open the circuit breaker; the scheduler observes the taint a moment later
		t.Errorf("%d pods have failed", failed)
	}
	rome.Kubectl(t, "-n", namespace, "delete", "deployment", "fails")
	return failed
}
