// SPDX-License-Identifier: Apache-2.0

package metricagent

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/deployments/liqo/charttest"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/kubetest/refusals"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/serving"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// env is a provider: a real API server with the agent as an aggregated API, and a kubelet that reports metrics of all pods.
type env struct {
	kubetest.Env
	admin   *rest.Config
	address string
	kubelet *httptest.Server
	token   string
	// asked counts all requests to kubelets, otherToken those without the agent's token.
	asked, otherToken atomic.Int32
	port              int
	// chart is what the chart would install.
	chart []*unstructured.Unstructured
	// denied are the forbidden requests of the agent.
	denied refusals.Log
}

func newEnv(t *testing.T, insecure bool) *env {
	t.Helper()
	b := &env{Env: kubetest.Env{T: t}, admin: kubetest.Cluster(t), address: ownAddress(t), chart: charttest.Render(t)}
	var err error
	b.Client, err = client.New(b.admin, client.Options{})
	b.Must(err)
	b.Until("Kubernetes has created its namespaces", func() bool {
		return b.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}) == nil
	})
	b.Must(b.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}))
	b.kubelet = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+b.token {
			b.otherToken.Add(1)
		}
		fmt.Fprintf(w, "# TYPE sample counter\n")
		for _, namespace := range []string{"shop-rome", "shop-turin", "kube-system"} {
			for _, pod := range []string{"web", "admin", "slow"} {
				fmt.Fprintf(w, "sample{kind=%q,namespace=%q,pod=%q} 7\n", r.URL.Path, namespace, pod)
			}
		}
		fmt.Fprintf(w, "node_cpu_usage_seconds_total 99\n")
	}))
	t.Cleanup(b.kubelet.Close)
	b.node("worker", int32(b.kubelet.Listener.Addr().(*net.TCPAddr).Port))
	b.node("gone", 1)
	for _, name := range []string{"rome", "turin"} {
		b.peer(name)
	}
	b.serve(insecure)
	b.register()
	return b
}

// ownAddress returns an address of this machine that an endpoint may have.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range all {
		if network, ok := addr.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	t.Skip("NOT RUN: this machine has only a loopback address, which no endpoint may have")
	return ""
}

func (b *env) node(name string, port int32) {
	b.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Must(b.Create(b.T.Context(), node))
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	b.Must(b.Status().Update(b.T.Context(), node))
}

// peer creates a tenant with an account that may scrape there, and a remote namespace with a pod of the peer and one of our own.
func (b *env) peer(name string) {
	b.T.Helper()
	tenant := "liqo-tenant-" + name
	for _, namespace := range []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{
			Name: tenant, Labels: map[string]string{"discovery.liqo.io/tenant-namespace": "true", "discovery.liqo.io/cluster-id": name + "-id"},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + name, Labels: map[string]string{"liqo.io/remote-cluster-id": name + "-id"}}},
	} {
		b.Must(b.Create(b.T.Context(), namespace))
	}
	b.Must(b.Create(b.T.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "liqo-peer"}}))
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "basic-" + name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{Group}, Resources: []string{"scrape/metrics"}, Verbs: []string{"get"}},
	}}
	b.Must(b.Create(b.T.Context(), role))
	b.Must(b.Create(b.T.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "basic"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: tenant, Name: "liqo-peer"}},
	}))
	b.pod("shop-"+name, "web", "worker", name+"-id")
	b.pod("shop-"+name, "admin", "worker", "") // ours, in the same namespace
	b.pod("shop-"+name, "slow", "gone", name+"-id")
}

func (b *env) pod(namespace, name, node, origin string) {
	b.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if origin != "" {
		pod.Labels = map[string]string{"virtualkubelet.liqo.io/origin": origin}
	}
	b.Must(b.Create(b.T.Context(), pod))
}

// as returns a configuration with the identity of a service account.
func (b *env) as(namespace, name string) *rest.Config {
	b.T.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	b.Must(b.SubResource("token").Create(b.T.Context(), account, request))
	config := rest.AnonymousClientConfig(b.admin)
	config.BearerToken = request.Status.Token
	return config
}

// serve runs the agent with only the rights of its role.
func (b *env) serve(insecure bool) {
	t := b.T
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-metric-agent"}}
	b.Must(b.Create(t.Context(), account))
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "liqo", Name: account.Name}}
	text, err := os.ReadFile("../../../deployments/liqo/files/rbac-metric-agent.yaml")
	b.Must(err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if err == io.EOF {
			break
		}
		b.Must(err)
		if role.Name == "" {
			continue
		}
		b.Must(b.Create(t.Context(), &role))
		b.Must(b.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		}))
	}
	b.Must(b.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "liqo-metric-agent"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
	}))
	config := b.as("liqo", account.Name)
	b.token = config.BearerToken
	kubelets, err := rest.TransportFor(KubeletConfig(config, insecure))
	b.Must(err)
	config.Wrap(b.denied.RoundTripper)
	options, err := CacheOptions()
	b.Must(err)
	cached, err := cache.New(config, options)
	b.Must(err)
	api, err := client.New(config, client.Options{})
	b.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	b.Must(Watch(ctx, cached))
	certificate, err := serving.FromFiles(b.file("cert"), b.file("key"))
	b.Must(err)
	listener, err := net.Listen("tcp", ":0")
	b.Must(err)
	b.port = listener.Addr().(*net.TCPAddr).Port
	ended := make(chan error, 2)
	go func() { ended <- cached.Start(ctx) }()
	go func() {
		ended <- serving.Serve(ctx, listener, certificate.Get, nil, New(cached, caller.New(api), kubelets))
	}()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("the agent: %v", err)
			}
		}
	})
	if !cached.WaitForCacheSync(ctx) {
		t.Fatal("the cache is not filled")
	}
}

// file returns the name of a file with a part of the Secret that the chart makes for the agent.
func (b *env) file(key string) string {
	b.T.Helper()
	part := charttest.Field(b.T, charttest.Find(b.T, b.chart, "Secret", "liqo-metric-agent-certs"), "data", key)
	text, err := base64.StdEncoding.DecodeString(fmt.Sprint(part))
	b.Must(err)
	name := filepath.Join(b.T.TempDir(), key)
	b.Must(os.WriteFile(name, text, 0o600))
	return name
}

// register registers the agent as an aggregated API, with the object of the chart.
func (b *env) register() {
	t := b.T
	t.Helper()
	b.Must(b.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-metric-agent"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}))
	b.Must(b.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-metric-agent", Labels: map[string]string{"kubernetes.io/service-name": "liqo-metric-agent"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}))
	b.answers(b.port)
	b.Must(b.Create(t.Context(), charttest.Find(t, b.chart, "APIService", "v1alpha1.metrics.liqo.io").DeepCopy()))
	b.Until("the API server serves the agent's API", func() bool {
		code, _ := b.get(b.admin, root, false)
		return code == http.StatusOK
	})
}

// answers makes a port of this machine the one that answers for the Service.
func (b *env) answers(port int) {
	b.T.Helper()
	var slice discoveryv1.EndpointSlice
	b.Must(b.Get(b.T.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-metric-agent"}, &slice))
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{b.address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}}
	slice.Ports = []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)}}
	b.Must(b.Update(b.T.Context(), &slice))
}

// get sends a request to the API server with an identity.
func (b *env) get(as *rest.Config, path string, packed bool) (int, string) {
	b.T.Helper()
	as = rest.CopyConfig(as)
	as.DisableCompression = true
	httpClient, err := rest.HTTPClientFor(as)
	b.Must(err)
	request, err := http.NewRequestWithContext(b.T.Context(), http.MethodGet, strings.TrimSuffix(b.admin.Host, "/")+path, nil)
	b.Must(err)
	if packed {
		request.Header.Set("Accept-Encoding", "gzip")
	}
	response, err := httpClient.Do(request)
	b.Must(err)
	defer response.Body.Close()
	body := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			b.T.Fatal(err)
		}
	} else if packed && response.StatusCode == http.StatusOK {
		b.T.Error("the answer is not compressed")
	}
	text, err := io.ReadAll(body)
	b.Must(err)
	return response.StatusCode, string(text)
}

func path(tenant, cluster, kind string) string {
	return root + "/namespaces/liqo-tenant-" + tenant + "/scrape/" + cluster + "-id/metrics/" + kind
}

// TestScrape: a peer gets only the metrics of its own pods through the API server, whatever path it requests.
func TestScrape(t *testing.T) {
	t.Parallel()
	b := newEnv(t, true)
	rome, turin := b.as("liqo-tenant-rome", "liqo-peer"), b.as("liqo-tenant-turin", "liqo-peer")
	var code int
	b.Until("the rights are in effect", func() bool {
		code, _ = b.get(rome, path("rome", "rome", "resource"), false)
		return code != http.StatusForbidden
	})
	for name, peer := range map[string]*rest.Config{"rome": rome, "turin": turin} {
		for _, kind := range []string{"resource", "cadvisor", "probes"} {
			code, text := b.get(peer, path(name, name, kind), kind == "resource")
			want := "# TYPE sample counter\nsample{kind=\"/metrics/" + kind + "\",namespace=\"shop-" + name + "\",pod=\"web\"} 7\n" +
				"sample{kind=\"/metrics/" + kind + "\",namespace=\"shop-" + name + "\",pod=\"slow\"} 7\n"
			// The kubelet may report a pod that is scheduled to another node.
			if code != http.StatusOK || text != want {
				t.Errorf("%s, %s: %d\n%s\nwant\n%s", name, kind, code, text, want)
			}
		}
	}
	for _, ask := range []string{
		path("turin", "turin", "resource"), path("turin", "rome", "resource"), path("rome", "turin", "resource"), path("rome", "rome", "other"),
		root + "/namespaces/liqo-tenant-rome/scrape/rome-id/metrics/../../../../liqo-tenant-turin/scrape/turin-id/metrics/resource",
		root + "/namespaces/liqo-tenant-rome%2Fscrape%2Frome-id/scrape/turin-id/metrics/resource",
		root + "/namespaces/shop-rome/scrape/rome-id/metrics/resource", root + "/scrape/turin-id/metrics/resource",
	} {
		if code, text := b.get(rome, ask, false); code == http.StatusOK || strings.Contains(text, "sample{") {
			t.Errorf("%s: %d %s", ask, code, text)
		}
	}
	if b.asked.Load() == 0 || b.otherToken.Load() > 0 {
		t.Errorf("%d requests to kubelets, %d with another token", b.asked.Load(), b.otherToken.Load())
	}
	if refused := b.denied.All(); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
	b.direct(t, turin)
}

// direct: a client that reaches the port without the API server gets nothing, whatever identity it claims.
func (b *env) direct(t *testing.T, as *rest.Config) {
	admin, err := tls.X509KeyPair(b.admin.CertData, b.admin.KeyData)
	b.Must(err)
	for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "the administrator's": {admin}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+strconv.Itoa(b.port)+path("turin", "turin", "resource"), nil)
		b.Must(err)
		request.Header.Set("Authorization", "Bearer "+as.BearerToken)
		request.Header.Set("X-Remote-User", "system:serviceaccount:liqo-tenant-turin:liqo-peer")
		response, err := transport.RoundTrip(request)
		b.Must(err)
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, response.StatusCode)
		}
	}
}

// TestUnverified: a kubelet without a verified certificate does not get our token, and the error for the peer contains no details.
func TestUnverified(t *testing.T) {
	t.Parallel()
	b := newEnv(t, false)
	rome := b.as("liqo-tenant-rome", "liqo-peer")
	var code int
	var text string
	b.Until("the rights are in effect", func() bool {
		code, text = b.get(rome, path("rome", "rome", "resource"), false)
		return code != http.StatusForbidden
	})
	if code != http.StatusBadGateway || strings.Contains(text, "127.0.0.1") || !strings.Contains(text, "see the log of liqo-metric-agent") {
		t.Errorf("%d %s", code, text)
	}
	if b.asked.Load() > 0 {
		t.Errorf("%d requests to the kubelet", b.asked.Load())
	}
}
