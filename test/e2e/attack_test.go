// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
)

// middle is a machine between two clusters that ends TLS and forwards everything. It can put its own API server into the answers.
type middle struct {
	url string
	ca  string // PEM

	mu      sync.Mutex
	swap    bool
	swapped int
	passed  bytes.Buffer
}

func (m *middle) set(swap bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swap, m.swapped = swap, 0
}

func (m *middle) attacks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.swapped
}

func (m *middle) saw(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Contains(m.passed.Bytes(), []byte(text))
}

// keep records a body, and returns it for whom it was meant.
func (m *middle) keep(body io.ReadCloser) (io.ReadCloser, []byte, error) {
	text, err := io.ReadAll(body)
	body.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passed.Write(text)
	return io.NopCloser(bytes.NewReader(text)), text, err
}

// tamper replaces the API server in an answer that has one.
func (m *middle) tamper(response *http.Response) error {
	body, text, err := m.keep(response.Body)
	response.Body = body
	var answer map[string]any
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || !m.swap || json.Unmarshal(text, &answer) != nil || answer["apiServerUrl"] == nil {
		return err
	}
	answer["apiServerUrl"], answer["apiServerCA"] = "https://192.0.2.66:6443", []byte(m.ca)
	if text, err = json.Marshal(answer); err != nil {
		return err
	}
	m.swapped++
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	response.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

// listen opens a port between the clusters, where the consumer reaches it.
func listen(t *testing.T, consumer *env.Cluster) net.Listener {
	t.Helper()
	clusters.NeedsPlayground(t, "the router between the clusters")
	route := strings.Fields(consumer.Nodes[0].Net().Run(t, "ip", "route", "show", "default"))
	at := slices.Index(route, "via")
	if at < 0 {
		t.Fatalf("node %s has no default route: %v", consumer.Nodes[0].Name, route)
	}
	listener, err := netns.Router().Listen(t.Context(), net.JoinHostPort(route[at+1], "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serve answers at a listener over TLS. Without a configuration, the certificate is one of package httptest.
func serve(t *testing.T, at net.Listener, handler http.Handler, config *tls.Config) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Listener.Close()
	server.Listener, server.TLS = at, config
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// between puts a machine between a consumer and the authentication service of a provider, where all that passes between the clusters comes by.
func between(t *testing.T, consumer *env.Cluster, service string) *middle {
	t.Helper()
	listener := listen(t, consumer)
	target, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{url: "https://" + listener.Addr().String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.Out.Body != nil {
				r.Out.Body, _, _ = m.keep(r.Out.Body)
			}
		},
		ModifyResponse: m.tamper,
		Transport: &http.Transport{
			DialContext: netns.Router().Dial, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the service signs its own certificate
		},
	}
	server := serve(t, listener, proxy, nil)
	m.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return m
}

// attackC1: a machine between the clusters ends TLS. It can forward, and neither read the token nor change where the consumer connects, at first contact and
// at renewals.
func attackC1(t *testing.T) {
	command := milan.PeerCommand(t)
	service, token := slices.Index(command, "--auth-url")+1, command[slices.Index(command, "--auth-token")+1]
	m := between(t, rome, command[service])
	command[service] = m.url

	m.set(true)
	peered := make(chan execution.Result, 1)
	go func() { peered <- rome.TryLiqoctl(command...) }()
	env.Eventually(t, env.Hang, "the consumer notices that the API server was swapped", func() (string, bool) {
		fc := rome.Foreign(t, milan)
		if fc == nil {
			return "no ForeignCluster", false
		}
		seen := env.PeeringCondition(fc, discovery.AuthenticationStatus)
		return string(seen.Status) + " " + seen.Message, m.attacks() > 0 && strings.Contains(seen.Message, "is not proven to be that of the provider")
	})
	var identities corev1.SecretList
	if err := rome.API.List(t.Context(), &identities, client.MatchingLabels{labels.LocalIdentity: "true"}); err != nil || len(identities.Items) > 0 {
		t.Fatalf("the consumer believed %d identities (%v)", len(identities.Items), err)
	}

	m.set(false)
	if result := <-peered; result.Code != 0 {
		t.Fatalf("through a machine that only forwards: %s", result)
	}
	rome.NodeReady(t, milan)
	before, address, _ := identity(t, rome, milan)
	if secret, _, _ := strings.Cut(token, "."); m.saw(secret) || m.saw(before) || !m.saw(address) {
		t.Errorf("passed by: the secret of first contact %t, the token of the API server %t, its address %t", m.saw(secret), m.saw(before), m.saw(address))
	}

	m.set(true)
	renew := func(value string) {
		t.Helper()
		rome.Kubectl(t, "annotate", "foreigncluster", rome.Foreign(t, milan).Name, "--overwrite", labels.OwnKey+value)
	}
	renew("=renew")
	env.Eventually(t, env.Hang, "the machine has changed the answer to a renewal", func() (string, bool) { return fmt.Sprint(m.attacks()), m.attacks() > 0 })
	// Its refusal is written before the next attempt, which therefore shows that this one had no effect.
	env.Eventually(t, env.Hang, "the consumer tries again", func() (string, bool) { return fmt.Sprint(m.attacks()), m.attacks() > 1 })
	if token, now, _ := identity(t, rome, milan); token != before || now != address {
		t.Errorf("the consumer believed a changed renewal: API server %s, before %s; the same token: %t", now, address, token == before)
	}
	rome.WantColumns(t, milan, "Established None Established Established")

	m.set(false)
	env.Eventually(t, env.Hang, "the identity is renewed when the machine only forwards", func() (string, bool) {
		token, now, _ := identity(t, rome, milan)
		return now, token != before && now == address
	})
	renew("-")
	notPeered(t)
}

// attackH1: a peer that is refused after it was admitted goes on trying, with the identity that it has.
func attackH1(t *testing.T) {
	token, _, own := identity(t, rome, milan)
	tenant := func(group, kind, body string) (int, string) {
		return call(t, milan, token, http.MethodPost, "/apis/"+group+"/v1alpha1/namespaces/"+own+"/"+kind, body)
	}
	namespaceMap := `{"apiVersion":"virtualkubelet.liqo.io/v1alpha1","kind":"NamespaceMap","metadata":{"name":"evil",` +
		`"labels":{"liqo.io/replicated":"true","liqo.io/replication":"false"}},"spec":{"desiredMapping":{"evil":"evil"}}}`
	wants := func(value string) {
		t.Helper()
		milan.Kubectl(t, "patch", "foreigncluster", milan.Foreign(t, rome).Name, "--type=merge", "-p", `{"spec":{"incomingPeeringEnabled":"`+value+`"}}`)
	}
	wants("No")
	env.Eventually(t, env.Hang, "the refused peer may create nothing", func() (string, bool) {
		status, text := tenant("virtualkubelet.liqo.io", "namespacemaps", namespaceMap)
		return strconv.Itoa(status) + " " + text, status == http.StatusForbidden && milan.Foreign(t, rome).Status.Incoming.State == discovery.IncomingRefused
	})
	if status, text := tenant(
		"net.liqo.io", "networkconfigs", `{"apiVersion":"net.liqo.io/v1alpha1","kind":"NetworkConfig","metadata":{"name":"evil"}}`,
	); status != http.StatusForbidden {
		t.Errorf("a network: %d %s", status, text)
	}
	env.Eventually(t, env.Hang, "the tunnel is gone, and the consumer shows why", func() (string, bool) {
		all, err := tunnels(milan)
		seen := env.PeeringCondition(rome.Foreign(t, milan), discovery.OutgoingPeering)
		return fmt.Sprintf("%d tunnels %v, %s %s", len(all.Items), err, seen.Status, seen.Message), err == nil &&
			len(all.Items) == 0 && seen.Status != discovery.StatusEstablished
	})
	if milan.TryKubectl("", "get", "namespace", "evil").Code == 0 {
		t.Error("the refused peer has a namespace")
	}
	wants("Auto")
	rome.NodeReady(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
}

// attackH4: a pod of the provider, such as one of a peer, posts reviews to the webhooks.
func attackH4(t *testing.T) {
	const namespace = "h4"
	clusters.NeedsPlayground(t, "the networks of pods")
	milan.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { milan.Kubectl(t, "delete", "namespace", namespace, "--wait=false") })
	milan.Kubectl(t, "-n", namespace, "run", "caller", "--image=localhost/traffic:dev", "--image-pull-policy=Never", "--", "serve")
	milan.Kubectl(t, "-n", namespace, "wait", "pod/caller", "--for=condition=Ready", "--timeout=180s")
	pods, err := milan.Pods(namespace, nil)
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	place, err := pods[0].Net()
	if err != nil {
		t.Fatal(err)
	}
	var hooks admissionregistrationv1.ValidatingWebhookConfiguration
	var service corev1.Service
	if err := milan.API.Get(t.Context(), client.ObjectKey{Name: "liqo"}, &hooks); err != nil {
		t.Fatal(err)
	}
	if err := milan.API.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-controller-manager"}, &service); err != nil {
		t.Fatal(err)
	}
	at := net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port)))
	caller := &http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, network, _ string) (net.Conn, error) { return place.Dial(ctx, network, at) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // the attacker does not mind
	}}
	post := func(path string) int {
		t.Helper()
		review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":"default","object":{}}}`
		response, err := caller.Post("https://webhook"+path, "application/json", strings.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for i := range hooks.Webhooks {
		path := *hooks.Webhooks[i].ClientConfig.Service.Path
		if status := post(path); status != http.StatusOK {
			t.Errorf("%s, with the path that only the API server knows: %d, so this test proves nothing", hooks.Webhooks[i].Name, status)
		}
		segments := strings.SplitN(path, "/", 3) // empty, the secret one, and the rest
		for _, guess := range []string{"/" + segments[2], "/" + strings.Repeat("a", len(segments[1])) + "/" + segments[2], "//" + segments[2]} {
			if status := post(guess); status != http.StatusNotFound {
				t.Errorf("%s: a review to %s is answered with %d", hooks.Webhooks[i].Name, guess, status)
			}
		}
	}
}

// rotateIdentity replaces the keys of both clusters while they are peered.
func rotateIdentity(t *testing.T) {
	key := func(c *env.Cluster) string {
		command := c.PeerCommand(t)
		_, fingerprint, _ := strings.Cut(command[slices.Index(command, "--auth-token")+1], ".")
		return fingerprint
	}
	known := func(by, of *env.Cluster) string { return by.Foreign(t, of).Spec.ClusterKey }
	node, err := rome.VirtualNode(milan)
	if err != nil {
		t.Fatal(err)
	}
	before := key(rome)
	result := rome.Liqoctl(t, "rotate", "identity")
	after := key(rome)
	if after == before || known(milan, rome) != after || !strings.Contains(result.Out+result.Err, "knows the new keys") {
		t.Errorf("milan knows rome by the key %s, which was %s and is %s now: %s", known(milan, rome), before, after, result)
	}
	milan.Liqoctl(t, "rotate", "identity")
	now, attempts := key(milan), 0
	env.Eventually(t, env.Hang, "rome knows milan's new key after a renewal", func() (string, bool) {
		// The authentication service reads its keys every ten seconds. Another value causes another renewal.
		attempts++
		rome.Kubectl(t, "annotate", "foreigncluster", rome.Foreign(t, milan).Name, "--overwrite", fmt.Sprintf("%s=renew-%d", labels.OwnKey, attempts))
		return known(rome, milan), known(rome, milan) == now
	})
	rome.Kubectl(t, "annotate", "foreigncluster", rome.Foreign(t, milan).Name, labels.OwnKey+"-")
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
	for _, c := range both() {
		other := map[*env.Cluster]*env.Cluster{rome: milan, milan: rome}[c]
		if _, err := networks.Condition(c, other); err != nil {
			t.Error(err)
		}
	}
	if now, err := rome.VirtualNode(milan); err != nil || now.UID != node.UID {
		t.Errorf("the virtual node was replaced (%v)", err)
	}
	if result := rome.TryLiqoctl("rotate", "identity"); result.Code == 0 || !strings.Contains(result.Out+result.Err, "--force") {
		t.Errorf("a second rotation at once: %s", result)
	}
}
