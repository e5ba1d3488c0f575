// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/serving"
	"liqo.io/liqo/internal/offloading/virtualkubelet"
)

const (
	localNamespace  = "shop"
	remoteNamespace = "shop-rome"
	peerNamespace   = "liqo-tenant-rome-abcdef"
	kubeletSpace    = "liqo-tenant-milan-123456"
	kubeletNode     = "liqo-milan"
)

// streamEnv is the path from kubectl to a container in another cluster: the consumer's API server, our port, a proxy that can be cut, the
// provider's API server, and its kubelet. Only the kubelet is a replacement, which speaks the protocols of a real one.
type streamEnv struct {
	kubetest.Env
	admin *rest.Config
	proxy *kubetest.Proxy
	// kubelet is the identity of the virtual kubelet, secret holds its identity at the provider.
	kubelet    *rest.Config
	secret     string
	provided   *farKubelet
	far        client.Client
	api        *Kubelet
	port       int
	kubeconfig string
	mappings   *mappings
	observed   observed
}

// mappings are the offloaded namespaces of a test, and the pods in them.
type mappings struct {
	mu      sync.Mutex
	of      map[string]string
	podRefs []PodRef
	another bool // the provider has an earlier pod of each name
}

func (p *mappings) Another(string, string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.another
}

func (p *mappings) earlier(there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.another = there
}

func (p *mappings) Remote(local string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	remote, ok := p.of[local]
	return remote, ok
}

func (p *mappings) PodRefs() []PodRef {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.podRefs
}

func newStreamEnv(t *testing.T) *streamEnv {
	t.Helper()
	consumer, provider := kubetest.Pair(t)
	near, err := client.New(consumer, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &streamEnv{
		Env: kubetest.Env{Client: near, T: t}, admin: consumer, secret: remote.SecretName("milan-id"),
		provided: newFarKubelet(t), mappings: &mappings{of: map[string]string{localNamespace: remoteNamespace}},
	}
	if r.far, err = client.New(provider, client.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{kubeletSpace, localNamespace, "elsewhere"} {
		r.Must(r.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	r.Until("Kubernetes has created its namespaces", func() bool {
		return r.Get(t.Context(), client.ObjectKey{Name: "kube-node-lease"}, &corev1.Namespace{}) == nil
	})
	r.kubelet = controllertest.VirtualKubelet(&r.Env, consumer, kubeletSpace)
	at, err := url.Parse(provider.Host)
	r.Must(err)
	r.proxy = kubetest.NewProxy(t, at.Host)
	r.peer(provider)
	r.serve()
	r.workload(r.far, remoteNamespace, "worker", r.provided.port())
	r.workload(near, localNamespace, kubeletNode, int32(r.port))
	r.workload(near, "elsewhere", "", 0)
	r.writeKubeconfig()
	return r
}

// peer creates the identity of the consumer in the provider, with only the documented rights in the remote namespace.
func (r *streamEnv) peer(provider *rest.Config) {
	t := r.T
	t.Helper()
	for _, namespace := range []string{peerNamespace, remoteNamespace} {
		r.Must(r.far.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: peerNamespace, Name: "liqo-peer"}}
	r.Must(r.far.Create(t.Context(), account))
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: "remote"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		// get as well: a WebSocket starts with a GET.
		{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
	}}
	r.Must(r.far.Create(t.Context(), role))
	r.Must(r.far.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: peerNamespace, Name: account.Name}},
	}))
	token := &authenticationv1.TokenRequest{}
	r.Must(r.far.SubResource("token").Create(t.Context(), account, token))
	identity := remote.Identity{
		Namespace: peerNamespace, APIServerURL: "https://" + r.proxy.Address(), APIServerCA: provider.CAData,
		Token: token.Status.Token, RenewAt: time.Now().Add(time.Hour), ExpiresAt: time.Now().Add(2 * time.Hour),
	}
	r.Must(r.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kubeletSpace, Name: r.secret}, Data: identity.Data()}))
}

// serve starts the kubelet API with the rights of the role.
func (r *streamEnv) serve() {
	t := r.T
	t.Helper()
	local, err := virtualkubelet.NewClient(r.kubelet)
	r.Must(err)
	r.api = New(Options{
		NodeName: kubeletNode, ConsumerID: "rome-id", RemoteName: "milan", Mappings: r.mappings, Pods: r.mappings, Another: r.mappings.Another,
		Provider: virtualkubelet.NewUplink(local, kubeletSpace, "milan-id"), Callers: caller.New(local),
	})
	certificate, err := serving.New(serving.Names{Common: kubeletNode, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	r.Must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
	r.port = listener.Addr().(*net.TCPAddr).Port
	kubetest.Start(t, "kubelet API", func(ctx context.Context) error {
		return serving.Serve(ctx, listener, certificate.Get, nil, r.observed.of(r.api))
	})
}

// workload creates a running pod, and its node.
func (r *streamEnv) workload(in client.Client, namespace, node string, port int32) {
	t := r.T
	t.Helper()
	if node != "" {
		made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		r.Must(in.Create(t.Context(), made))
		made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		made.Status.DaemonEndpoints.KubeletEndpoint.Port = port
		r.Must(in.Status().Update(t.Context(), made))
	} else {
		node = kubeletNode
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app"}, {Name: "side", Image: "side"}}},
	}
	r.Must(in.Create(t.Context(), pod))
	// As `kubectl debug` adds it.
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "tools", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}}
	r.Must(in.SubResource("ephemeralcontainers").Update(t.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "side", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	r.Must(in.Status().Update(t.Context(), pod))
	r.mappings.podRefs = append(r.mappings.podRefs, PodRef{Namespace: namespace, Name: "web", UID: types.UID("uid-" + namespace)})
}

func (r *streamEnv) writeKubeconfig() {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: r.admin.Host, CertificateAuthorityData: r.admin.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: r.admin.CertData, ClientKeyData: r.admin.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: localNamespace}
	config.CurrentContext = "x"
	r.kubeconfig = filepath.Join(r.T.TempDir(), "kubeconfig")
	r.Must(clientcmd.WriteToFile(*config, r.kubeconfig))
}

// kubectl returns a command of the kubectl in the assets, which uses WebSocket or SPDY.
func (r *streamEnv) kubectl(ctx context.Context, webSockets bool, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+r.kubeconfig,
		fmt.Sprintf("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=%t", webSockets), fmt.Sprintf("KUBECTL_PORT_FORWARD_WEBSOCKETS=%t", webSockets))
	return command
}

func (r *streamEnv) run(t *testing.T, webSockets bool, input string, args ...string) (out, errs string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := r.kubectl(ctx, webSockets, args...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &stdout, &stderr
	err := command.Run()
	if ctx.Err() != nil {
		t.Fatalf("kubectl %v did not end: %s", args, stderr.String())
	}
	if failed, ok := err.(*exec.ExitError); ok {
		code = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), code
}

// TestStreams: logs, exec, attach and port-forward work on a pod in another cluster, by both protocols, and leave nothing behind.
func TestStreams(t *testing.T) {
	t.Parallel()
	r := newStreamEnv(t)
	step := func(t *testing.T, name string, do func(*testing.T)) {
		t.Run(name, func(t *testing.T) {
			defer func(before *testing.T) { r.T = before }(r.T)
			r.T = t
			do(t)
		})
	}
	step(t, "logs", r.testLogs)
	step(t, "follow", r.testFollow)
	for name, webSockets := range map[string]bool{"websocket": true, "spdy": false} {
		step(t, name, func(t *testing.T) {
			step(t, "exec", func(t *testing.T) { r.testExec(t, webSockets) })
			step(t, "attach", func(t *testing.T) { r.testAttach(t, webSockets) })
			step(t, "port-forward", func(t *testing.T) { r.testPortForward(t, webSockets) })
		})
	}
	step(t, "predecessor", r.testPredecessor)
	step(t, "user", r.testUser)
	step(t, "callers", r.testCallers)
	step(t, "either end", r.testEitherEnd)
	step(t, "bound", r.testBound)
	step(t, "provider unreachable", r.testAway)
}

func (r *streamEnv) testLogs(t *testing.T) {
	out, errs, code := r.run(t, true, "", "logs", "web", "-c", "side", "--previous", "--since=60s", "--timestamps", "--tail=5", "--limit-bytes=1000")
	if out != "log of shop-rome web side\n" || code != 0 {
		t.Fatalf("%q %q %d", out, errs, code)
	}
	if want := "GET /containerLogs/shop-rome/web/side?limitBytes=1000&previous=true&sinceSeconds=60&tailLines=5&timestamps=true"; r.provided.last() != want {
		t.Errorf("the provider's kubelet was asked %s, want %s", r.provided.last(), want)
	}
	out, _, _ = r.run(t, true, "", "logs", "web", "-c", "app", "--since-time=2026-01-02T03:04:05Z")
	if want := "GET /containerLogs/shop-rome/web/app?sinceTime=2026-01-02T03%3A04%3A05Z"; out == "" || r.provided.last() != want {
		t.Errorf("the provider's kubelet was asked %s, want %s", r.provided.last(), want)
	}
	out, errs, _ = r.run(t, true, "", "logs", "web", "-c", "app", "--tail=77")
	if len(out) < longLog {
		t.Errorf("%d bytes of a long log: %s", len(out), errs)
	}
	// Refusals reach the user with their text.
	for namespace, want := range map[string]string{
		"elsewhere": "namespace elsewhere is not offloaded to cluster milan; see its NamespaceOffloading",
	} {
		if _, errs, code = r.run(t, true, "", "-n", namespace, "logs", "web", "-c", "app"); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q, want %q", errs, want)
		}
	}
	r.mappings.mu.Lock()
	r.mappings.of["elsewhere"] = "not-ours"
	r.mappings.mu.Unlock()
	if _, errs, code = r.run(t, true, "", "-n", "elsewhere", "logs", "web", "-c", "app"); code == 0 || !strings.Contains(errs, "cluster milan does not allow it") {
		t.Errorf("a remote namespace of another peer: %q", errs)
	}
	r.mappings.mu.Lock()
	delete(r.mappings.of, "elsewhere")
	r.mappings.mu.Unlock()
}

// testPredecessor: while the provider still has an earlier pod of the name, nothing that is asked of the pod reaches that one.
func (r *streamEnv) testPredecessor(t *testing.T) {
	r.mappings.earlier(true)
	defer r.mappings.earlier(false)
	before := r.provided.last()
	for _, command := range [][]string{{"logs", "web", "-c", "app"}, {"exec", "web", "-c", "app", "--", "true"}, {"attach", "web", "-c", "app"}} {
		out, errs, code := r.run(t, true, "", command...)
		if want := `pod "web" waits for its predecessor of the same name, which cluster milan still has`; code == 0 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %q, %q", command[0], code, out, errs)
		}
	}
	if got := r.provided.last(); got != before {
		t.Errorf("the provider's kubelet was asked %s", got)
	}
	if pods := r.api.podsByRemoteName(); len(pods) != 0 {
		t.Errorf("the metrics of the earlier pods are taken for those of %v", pods)
	}
}

func (r *streamEnv) testFollow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := r.kubectl(ctx, true, "logs", "-f", "web", "-c", "app")
	output, err := command.StdoutPipe()
	r.Must(err)
	r.Must(command.Start())
	lines := bufio.NewReader(output)
	want := func(line string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); err != nil || got != line+"\n" {
			t.Fatalf("read %q, %v, want %q", got, err, line)
		}
	}
	want("log of shop-rome web app")
	for i := range 3 {
		r.provided.more <- fmt.Sprint("line ", i)
		want(fmt.Sprint("line ", i))
	}
	if got := r.api.Streams(); got != 1 {
		t.Errorf("%d streams", got)
	}
	// When the client ends, the stream ends at the provider.
	r.Must(command.Process.Kill())
	_ = command.Wait() // killed
	r.Until("the stream has ended at the provider", func() bool { return r.provided.open.Load() == 0 && r.api.Streams() == 0 })
}

func (r *streamEnv) testExec(t *testing.T, webSockets bool) {
	out, errs, code := r.run(t, webSockets, "", "exec", "web", "-c", "app", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if out != "out\n" || !strings.HasPrefix(errs, "err\n") || code != 7 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	want := "/exec/shop-rome/web/app?command=sh&command=-c&command=echo+out%3B+echo+err+%3E%262%3B+exit+7&error=1&output=1"
	if got := r.provided.last(); !strings.HasSuffix(got, want) {
		t.Errorf("the provider's kubelet was asked %s, want %s", got, want)
	}
	input := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB each way
	if out, errs, code = r.run(t, webSockets, input, "exec", "-i", "web", "-c", "app", "--", "cat"); out != input || code != 0 {
		t.Errorf("%d bytes came back of %d: %s, %d", len(out), len(input), errs, code)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "sent")
	r.Must(os.WriteFile(file, []byte(input), 0o600))
	if _, errs, code = r.run(t, webSockets, "", "cp", "-c", "app", file, "web:"+filepath.Join(dir, "received")); code != 0 {
		t.Errorf("cp: %s", errs)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "received")); err != nil || string(got) != input {
		t.Errorf("cp brought %d bytes, %v", len(got), err)
	}
	r.Until("the streams have ended", func() bool { return r.provided.open.Load() == 0 && r.api.Streams() == 0 })
}

func (r *streamEnv) testAttach(t *testing.T, webSockets bool) {
	out, errs, code := r.run(t, webSockets, "hello\n", "attach", "-i", "web", "-c", "side")
	if !strings.Contains(out, "attached to web side\nhello\n") || code != 0 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	if got := r.provided.last(); !strings.Contains(got, "/attach/shop-rome/web/side?") {
		t.Errorf("the provider's kubelet was asked %s", got)
	}
	if out, errs, code = r.run(t, webSockets, "hello\n", "attach", "-i", "web", "-c", "debugger"); !strings.Contains(out, "attached to web debugger\nhello\n") ||
		code != 0 {
		t.Errorf("an ephemeral container: %q %q %d", out, errs, code)
	}
}

func (r *streamEnv) testPortForward(t *testing.T, webSockets bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := r.kubectl(ctx, webSockets, "port-forward", "web", ":8080", ":9090", "--address=127.0.0.1")
	output, err := command.StdoutPipe()
	r.Must(err)
	r.Must(command.Start())
	lines := bufio.NewReader(output)
	ports := []string{"8080", "9090"}
	local := make([]int, len(ports))
	for i, port := range ports { // before the first connection, for which kubectl prints lines as well
		line, err := lines.ReadString('\n')
		r.Must(err)
		if _, err := fmt.Sscanf(line, "Forwarding from 127.0.0.1:%d -> "+port, &local[i]); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	for i, port := range ports {
		for range 3 {
			connection, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", local[i]))
			r.Must(err)
			r.Must(connection.SetDeadline(time.Now().Add(20 * time.Second)))
			reader := bufio.NewReader(connection)
			if line, err := reader.ReadString('\n'); err != nil || line != "port "+port+" of web\n" {
				t.Fatalf("%q %v", line, err)
			}
			message := bytes.Repeat([]byte("ping"), 1<<16)
			go func() { _, _ = connection.Write(message) }() // missing bytes are detected below
			back := make([]byte, len(message))
			if _, err := io.ReadFull(reader, back); err != nil || !bytes.Equal(back, message) {
				t.Fatalf("what came back is not what was sent: %v", err)
			}
			r.Must(connection.Close())
		}
	}
	r.Must(command.Process.Kill())
	_ = command.Wait() // killed
	r.Until("the streams have ended", func() bool { return r.provided.open.Load() == 0 && r.api.Streams() == 0 })
}

// testCallers: only the API server, and clients that may call kubelets, get into a pod through this port.
func (r *streamEnv) testCallers(t *testing.T) {
	token := func(name string, verbs, resources []string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: localNamespace, Name: name}}
		r.Must(r.Create(t.Context(), account))
		if verbs != nil {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: resources, Verbs: verbs, ResourceNames: []string{kubeletNode}},
			}}
			r.Must(r.Create(t.Context(), role))
			r.Must(r.Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: localNamespace, Name: name}},
			}))
		}
		request := &authenticationv1.TokenRequest{}
		r.Must(r.SubResource("token").Create(t.Context(), account, request))
		return request.Status.Token
	}
	reader := token("reader", []string{"get"}, []string{"nodes/proxy"})
	scraper := token("scraper", []string{"get"}, []string{"nodes/metrics"})
	unprivileged := token("anybody", nil, nil)
	admin, err := tls.X509KeyPair(r.admin.CertData, r.admin.KeyData)
	r.Must(err)
	forger, err := serving.New(serving.Names{Common: "kube-apiserver-kubelet-client", Organization: "system:masters"})
	r.Must(err)
	forged, err := forger.Get(nil)
	r.Must(err)

	call := func(path, bearer string, certificate *tls.Certificate, webSocket bool) int {
		t.Helper()
		config := &tls.Config{InsecureSkipVerify: true}
		if certificate != nil {
			config.Certificates = []tls.Certificate{*certificate}
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", r.port, path), nil)
		r.Must(err)
		if bearer != "" {
			request.Header.Set("Authorization", "Bearer "+bearer)
		}
		// Headers that must not be trusted.
		request.Header.Set("X-Remote-User", "admin")
		request.Header.Set("X-Remote-Group", "system:masters")
		request.Header.Set("Impersonate-User", "admin")
		if webSocket {
			for name, value := range map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
				"Sec-WebSocket-Protocol": "v4.channel.k8s.io",
			} {
				request.Header.Set(name, value)
			}
		}
		response, err := transport.RoundTrip(request)
		r.Must(err)
		_ = response.Body.Close()
		return response.StatusCode
	}
	const logs, run = "/containerLogs/shop/web/app", "/exec/shop/web/app?command=true&output=1"
	r.Until("the rights are in effect", func() bool { return call("/healthz", reader, nil, false) == http.StatusOK })
	for _, c := range []struct {
		name, path, token string
		certificate       *tls.Certificate
		webSocket         bool
		want              int
	}{
		{"without credentials", logs, "", nil, false, http.StatusUnauthorized},
		{"without credentials", "/healthz", "", nil, false, http.StatusUnauthorized},
		{"without credentials", run, "", nil, true, http.StatusUnauthorized},
		{"an invalid token", logs, "abc", nil, false, http.StatusUnauthorized},
		{"a forged certificate", logs, "", forged, false, http.StatusUnauthorized},
		{"the administrator", logs, "", &admin, false, http.StatusOK},
		{"the administrator, with a WebSocket", run, "", &admin, true, http.StatusSwitchingProtocols},
		{"a pod's account", logs, unprivileged, nil, false, http.StatusForbidden},
		{"a pod's account", run, unprivileged, nil, true, http.StatusForbidden},
		{"a reader", logs, reader, nil, false, http.StatusOK},
		{"a reader, exec", run, reader, nil, true, http.StatusForbidden},
		{"a scraper", logs, scraper, nil, false, http.StatusForbidden},
		{"the administrator, without an upgrade", run, "", &admin, false, http.StatusBadRequest},
		{"another path", "/containerLogs/../exec/shop/web/app", "", &admin, false, http.StatusTemporaryRedirect},
		{"another path", "/containerLogs/shop-rome%2Fpods%2Fother/web/app", "", &admin, false, http.StatusBadRequest},
		{"another path", "/containerLogs/shop/web%3Fcontainer=x/app", "", &admin, false, http.StatusBadRequest},
		{"no such path", "/spec/", "", &admin, false, http.StatusNotFound},
		{"no such path, and no rights", "/spec/", unprivileged, nil, false, http.StatusForbidden},
		{"no such path, and no credentials", "/spec/", "", nil, false, http.StatusUnauthorized},
		{"off", "/run/shop/web/app", "", &admin, false, http.StatusMethodNotAllowed},
		{"off, for a reader", "/run/shop/web/app", reader, nil, false, http.StatusForbidden},
		{"off", "/logs/", "", &admin, false, http.StatusMethodNotAllowed},
		{"another method", "/checkpoint/shop/web/app", "", &admin, false, http.StatusMethodNotAllowed},
		{"a scraper", "/metrics", scraper, nil, false, http.StatusOK},
		{"a scraper", "/pods", scraper, nil, false, http.StatusForbidden},
		{"a reader", "/pods", reader, nil, false, http.StatusOK},
		{"a reader of a pod that is gone", "/exec/shop/web/another-uid/app?command=true&output=1", "", &admin, true, http.StatusNotFound},
	} {
		if got := call(c.path, c.token, c.certificate, c.webSocket); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.name, c.path, got, c.want)
		}
	}
	r.Until("the streams have ended", func() bool { return r.provided.open.Load() == 0 && r.api.Streams() == 0 })
}

// testEitherEnd: a stream ends when either end closes.
func (r *streamEnv) testEitherEnd(t *testing.T) {
	const exits = "the far end exits"
	for name, end := range map[string]func(command *exec.Cmd, input io.Writer){
		"the client":            func(command *exec.Cmd, _ io.Writer) { r.Must(command.Process.Kill()) },
		"the connection is cut": func(*exec.Cmd, io.Writer) { r.proxy.Cut() },
		exits:                   func(_ *exec.Cmd, input io.Writer) { fmt.Fprintln(input, "go") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			command := r.kubectl(ctx, true, "exec", "-i", "web", "-c", "app", "--", "sh", "-c", "echo there; read line; exit 3")
			input, err := command.StdinPipe()
			r.Must(err)
			output, err := command.StdoutPipe()
			r.Must(err)
			r.Must(command.Start())
			if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "there\n" {
				t.Fatalf("%q %v", line, err)
			}
			if got := r.api.Streams(); got != 1 {
				t.Errorf("%d streams", got)
			}
			end(command, input)
			_ = command.Wait() // kubectl takes a connection that was cut for a success
			if got := command.ProcessState.ExitCode(); name == exits && got != 3 {
				t.Errorf("ended with %d", got)
			}
			r.Until("the stream has ended", func() bool { return r.provided.open.Load() == 0 && r.api.Streams() == 0 })
		})
	}
}

// testBound: the number of streams is bounded, and ended streams free their resources.
func (r *streamEnv) testBound(t *testing.T) {
	admin, err := tls.X509KeyPair(r.admin.CertData, r.admin.KeyData)
	r.Must(err)
	before := runtime.NumGoroutine()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{admin}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func() int {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/containerLogs/shop/web/app?follow=true", r.port), nil)
		r.Must(err)
		response, err := transport.RoundTrip(request)
		r.Must(err)
		return response.StatusCode
	}
	for i := range maxStreams {
		if got := follow(); got != http.StatusOK {
			t.Fatalf("stream %d: %d", i, got)
		}
	}
	t.Logf("%d goroutines in this process, which is client, port and far kubelet, for %d streams", runtime.NumGoroutine()-before, maxStreams)
	if got := follow(); got != http.StatusTooManyRequests {
		t.Errorf("one more: %d", got)
	}
	cancel()
	transport.CloseIdleConnections()
	r.Until("all streams have ended", func() bool {
		return r.api.Streams() == 0 && r.provided.open.Load() == 0
	})
	r.Until("no goroutine is left", func() bool { transport.CloseIdleConnections(); return runtime.NumGoroutine() < before+60 })
}

// testAway: while the provider is unreachable, the client gets an error with the reason: at once if the connection is closed, and else after
// the deadline that the message names.
func (r *streamEnv) testAway(t *testing.T) {
	r.proxy.Set(kubetest.Refuse)
	_, errs, code := r.run(t, true, "", "logs", "web", "-c", "app")
	if code == 0 ||
		!strings.Contains(errs, "cluster milan, where the pod runs, does not answer: the connection was closed; see: kubectl describe node liqo-milan") {
		t.Errorf("%q", errs)
	}
	_, errs, code = r.run(t, true, "", "exec", "web", "-c", "app", "--", "true")
	if code == 0 || !strings.Contains(errs, "cluster milan, where the pod runs, does not answer") {
		t.Errorf("%q", errs)
	}
	r.proxy.Set(kubetest.Swallow)
	_, errs, code = r.run(t, true, "", "logs", "web", "-c", "app")
	if code == 0 || !strings.Contains(errs, "does not answer: no answer within 10s") {
		t.Errorf("%q", errs)
	}
	r.proxy.Set(kubetest.Pass)
	r.proxy.Cut()
	if out, errs, _ := r.run(t, true, "", "logs", "web", "-c", "app"); out == "" {
		t.Errorf("after the provider is reachable again: %q", errs)
	}
}
