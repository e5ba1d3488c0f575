// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/network/report"
)

const (
	home = "liqo"
	user = "network-test"
	// inTime is how long a step may take on a busy machine.
	inTime = 20 * time.Second
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// bench is a real API server with the controllers under test in it: the peers, and the gateways, are the test.
type bench struct {
	client.Client
	t      *testing.T
	scheme *runtime.Scheme
	admin  *rest.Config
	// writes counts what the controllers sent to be written.
	writes  atomic.Int32
	port    int
	options Options
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{t: t, admin: kubetest.Cluster(t), scheme: runtime.NewScheme(), options: Options{
		Local: discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}, Namespace: home,
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme} {
		b.must(add(b.scheme))
	}
	crds := "../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "discovery.liqo.io_foreignclusters.yaml", crds + "net.liqo.io_networkconfigs.yaml", crds + "net.liqo.io_tunnelendpoints.yaml", crds + "net.liqo.io_ipmappings.yaml",
	}})
	b.must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.must(err)
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})
	b.bind("", b.marks()[""])
	b.bind(home, b.marks()["liqo"])
	return b
}

// marks are the rights that the code asks for, by namespace.
func (b *bench) marks() map[string][]rbacv1.PolicyRule {
	b.t.Helper()
	files, err := filepath.Glob("*.go")
	b.must(err)
	rules := map[string][]rbacv1.PolicyRule{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		b.must(err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, mark := range regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`).FindAllStringSubmatch(string(source), -1) {
			fields := map[string][]string{"namespace": {""}}
			for field := range strings.SplitSeq(mark[1], ",") {
				key, value, _ := strings.Cut(field, "=")
				fields[key] = strings.Split(strings.Trim(value, `"`), ";")
			}
			namespace := fields["namespace"][0]
			rules[namespace] = append(rules[namespace], rbacv1.PolicyRule{
				APIGroups: fields["groups"], Resources: fields["resources"], ResourceNames: fields["resourceNames"], Verbs: fields["verbs"],
			})
		}
	}
	return rules
}

// bind gives the controllers rights in a namespace, or everywhere.
func (b *bench) bind(namespace string, rules []rbacv1.PolicyRule) {
	b.t.Helper()
	name, subjects := metav1.ObjectMeta{Name: user, Namespace: namespace}, []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	if namespace == "" {
		b.create(&rbacv1.ClusterRole{ObjectMeta: name, Rules: rules})
		b.create(&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}})
		return
	}
	b.create(&rbacv1.Role{ObjectMeta: name, Rules: rules})
	b.create(&rbacv1.RoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}})
}

// run starts the controllers; they end with stop, or with the test.
func (b *bench) run() (stop func()) {
	b.t.Helper()
	cfg := rest.CopyConfig(b.admin)
	cfg.Impersonate.UserName = user
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				b.writes.Add(1)
			}
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusForbidden {
				b.t.Errorf("forbidden: %s %s", request.Method, request.URL.Path)
			}
			return response, err
		})
	})
	mgr, err := manager.New(cfg, manager.Options{Scheme: b.scheme, SkipNameValidation: true})
	b.must(err)
	b.options.ReportPort = b.port
	b.must(Setup(mgr, b.options))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t := b.t
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager ended: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create(object client.Object) {
	b.t.Helper()
	b.must(b.Create(b.t.Context(), object))
}

func (b *bench) until(what string, done func() bool) {
	b.t.Helper()
	for begin := time.Now(); time.Since(begin) < inTime; time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	b.t.Fatalf("not within %v: %s", inTime, what)
}

func (b *bench) read(object client.Object) {
	b.t.Helper()
	b.must(b.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
}

// there tells whether an object is there, and reads it.
func (b *bench) there(object client.Object) bool {
	b.t.Helper()
	err := b.Get(b.t.Context(), client.ObjectKeyFromObject(object), object)
	b.must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

func (b *bench) edit(object client.Object, change func()) {
	b.t.Helper()
	b.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		b.read(object)
		change()
		return b.Update(b.t.Context(), object)
	}))
}

func (b *bench) editStatus(object client.Object, change func()) {
	b.t.Helper()
	b.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		b.read(object)
		change()
		return b.Status().Update(b.t.Context(), object)
	}))
}

// quiet fails if anything is written for a while.
func (b *bench) quiet(what string, during time.Duration) {
	b.t.Helper()
	before := b.writes.Load()
	time.Sleep(during) // silence can only be seen by waiting
	if now := b.writes.Load(); now != before {
		b.t.Errorf("%s: %d writes in %s", what, now-before, during)
	}
}

// peer is one remote cluster, as this one sees it.
type peer struct {
	*bench
	id     discoveryv1alpha1.ClusterIdentity
	fc     *discoveryv1alpha1.ForeignCluster
	ours   *netv1alpha1.NetworkConfig
	copy   *netv1alpha1.NetworkConfig
	tunnel *netv1alpha1.TunnelEndpoint
}

// peer makes a ForeignCluster with its tenant namespace; nothing is wanted of it yet.
func (b *bench) peer(name string) *peer {
	b.t.Helper()
	id := discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}
	at := metav1.ObjectMeta{Namespace: id.TenantNamespace(), Name: id.UniqueName()}
	p := &peer{
		bench: b, id: id,
		fc: &discoveryv1alpha1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.ClusterID: id.ClusterID}},
			Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &id, ForeignAuthURL: "https://" + name, OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo},
		},
		ours:   &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: b.options.Local.NetworkConfigName()}},
		tunnel: &netv1alpha1.TunnelEndpoint{ObjectMeta: at},
	}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at.Namespace}})
	b.bind(at.Namespace, b.marks()["liqo-tenant"])
	b.create(p.fc)
	b.editStatus(p.fc, func() { p.fc.Status.TenantNamespace.Local = at.Namespace })
	return p
}

func (p *peer) outgoing(status discoveryv1alpha1.PeeringConditionStatus) {
	p.t.Helper()
	p.editStatus(p.fc, func() {
		p.fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{{
			Type: discoveryv1alpha1.OutgoingPeering, Status: status, LastTransitionTime: metav1.Now(),
		}}
	})
}

// testKey is some public key.
func testKey(n byte) string {
	key := [keySize]byte{n, 1, 2, 3}
	text, _ := json.Marshal(key[:]) // base64 in quotes
	return strings.Trim(string(text), `"`)
}

// says writes the peer's copy as the peer would.
func (p *peer) says(pods, external string, key byte) {
	p.t.Helper()
	p.copy = p.claims(pods, external, key)
	p.create(p.copy)
}

func (p *peer) claims(pods, external string, key byte) *netv1alpha1.NetworkConfig {
	return &netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.id.TenantNamespace(), Name: p.id.NetworkConfigName(), Labels: map[string]string{
			labels.Replication: "false", labels.Replicated: "true", labels.OriginID: p.id.ClusterID, labels.RemoteID: p.options.Local.ClusterID,
			labels.Ownership: labels.OwnershipConfig,
		}},
		Spec: netv1alpha1.NetworkConfigSpec{
			Cluster: netv1alpha1.ClusterIdentity{ClusterID: p.options.Local.ClusterID, ClusterName: p.options.Local.ClusterName},
			PodCIDR: netv1alpha1.CIDR(pods), ExternalCIDR: netv1alpha1.CIDR(external), EndpointIP: "203.0.113.7", BackendType: "wireguard",
			BackendConfig: map[string]string{"publicKey": testKey(key), "port": "5871"},
			Lanes: []netv1alpha1.Lane{
				{Number: 0, PublicKey: testKey(key), Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{"203.0.113.7"}, Port: 5871}}},
				{Number: 1, PublicKey: testKey(key + 100)},
			},
		},
	}
}

// answers writes the status of ours as the peer would.
func (p *peer) answers(pods, external string) {
	p.t.Helper()
	p.until("our network is told", func() bool { return p.there(p.ours) })
	p.editStatus(p.ours, func() {
		p.ours.Status.Processed, p.ours.Status.PodCIDRNAT, p.ours.Status.ExternalCIDRNAT = true, pods, external
		p.ours.Status.ObservedGeneration = p.ours.Generation
	})
}

// decided waits until the copy has the condition.
func (p *peer) decided(reason, part string) {
	p.t.Helper()
	var said metav1.Condition
	defer func() {
		if p.t.Failed() {
			p.t.Logf("it says %+v", said)
		}
	}()
	p.until("copy of "+p.id.ClusterName+" is "+reason+" "+part, func() bool {
		p.read(p.copy)
		if found := meta.FindStatusCondition(p.copy.Status.Conditions, netv1alpha1.ConditionReady); found != nil {
			said = *found
		}
		return said.Reason == reason && strings.Contains(said.Message, part) && said.ObservedGeneration == p.copy.Generation
	})
}

// seen waits until the peer's networks are what is said.
func (p *peer) seen(pods, external string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%s is seen as %s and %s", p.id.ClusterName, pods, external), func() bool {
		p.read(p.copy)
		now := p.copy.Status
		return now.Processed && now.PodCIDRNAT == pods && now.ExternalCIDRNAT == external && now.ObservedGeneration == p.copy.Generation
	})
}

// published waits for the condition of our own NetworkConfig.
func (p *peer) published(reason, part string) {
	p.t.Helper()
	var said metav1.Condition
	defer func() {
		if p.t.Failed() {
			p.t.Logf("it says %+v", said)
		}
	}()
	p.until("ours for "+p.id.ClusterName+" is "+reason+" "+part, func() bool {
		if !p.there(p.ours) {
			return false
		}
		if found := meta.FindStatusCondition(p.ours.Status.Conditions, netv1alpha1.ConditionPublished); found != nil {
			said = *found
		}
		return said.Reason == reason && strings.Contains(said.Message, part)
	})
}

// connected waits for the condition of the tunnel.
func (p *peer) connected(status netv1alpha1.ConnectionStatus, reason, part string) {
	p.t.Helper()
	var said metav1.Condition
	defer func() {
		if p.t.Failed() {
			p.t.Logf("it says %+v, %+v", said, p.tunnel.Status.Connection)
		}
	}()
	p.until(fmt.Sprintf("tunnel to %s is %s %s %s", p.id.ClusterName, status, reason, part), func() bool {
		if !p.there(p.tunnel) {
			return false
		}
		if found := meta.FindStatusCondition(p.tunnel.Status.Conditions, netv1alpha1.ConditionConnected); found != nil {
			said = *found
		}
		is := metav1.ConditionFalse
		if status == netv1alpha1.Connected {
			is = metav1.ConditionTrue
		}
		return p.tunnel.Status.Connection.Status == status && said.Status == is && said.Reason == reason && strings.Contains(said.Message, part)
	})
}

// service makes the Service of a lane.
func (b *bench) service(lane int, kind corev1.ServiceType) *corev1.Service {
	b.t.Helper()
	name := "liqo-gateway"
	if lane > 0 {
		name += "-" + strconv.Itoa(lane)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: name, Labels: map[string]string{labels.Gateway: "true", labels.GatewayLane: strconv.Itoa(lane)}},
		Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{
			{Name: "metrics", Port: 5872}, {Name: "wireguard", Protocol: corev1.ProtocolUDP, Port: 5871, TargetPort: intstr.FromInt32(5871)},
		}},
	}
	b.create(service)
	return service
}

func (b *bench) node(name, address string, ready bool) *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.create(node)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	b.editStatus(node, func() {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test"}}
	})
	return node
}

// gateway is a process that reports, on an address of this machine, and its pod.
type gateway struct {
	*bench
	pod    *corev1.Pod
	server *httptest.Server

	mu   sync.Mutex
	said report.Gateway
	tick chan struct{}
	mute bool
}

func (b *bench) gateway(lane int, node string) *gateway {
	b.t.Helper()
	g := &gateway{bench: b, tick: make(chan struct{}), said: report.Gateway{Lane: lane, Node: node, Implementation: "userspace"}}
	address := fmt.Sprintf("127.0.1.%d", lane+1)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(b.port)))
	b.must(err)
	b.port = listener.Addr().(*net.TCPAddr).Port
	g.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: g}}
	g.server.Start()
	b.t.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	g.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: fmt.Sprintf("liqo-gateway-%d-abc", lane), Labels: map[string]string{
			labels.Gateway: labels.GatewayActive, labels.GatewayLane: strconv.Itoa(lane),
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "gateway", Image: "i"}}},
	}
	b.create(g.pod)
	b.editStatus(g.pod, func() {
		g.pod.Status.Phase, g.pod.Status.PodIP, g.pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	})
	return g
}

// says changes the report, at once.
func (g *gateway) says(change func(*report.Gateway)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.said)
	close(g.tick)
	g.tick = make(chan struct{})
}

// hang makes the gateway keep its connection and say nothing.
func (g *gateway) hang(mute bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute = mute
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != report.Path {
		http.NotFound(w, request)
		return
	}
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for {
		g.mu.Lock()
		line, err := json.Marshal(g.said)
		tick, mute := g.tick, g.mute
		for i := range g.said.Peers {
			g.said.Peers[i].HandshakeSeconds++ // ages grow
			g.said.Peers[i].RTTMicroseconds += 10
		}
		g.mu.Unlock()
		if err == nil && !mute {
			_, err = w.Write(append(line, '\n'))
			w.(http.Flusher).Flush()
		}
		if err != nil {
			return
		}
		select {
		case <-tick:
		case <-every.C:
		case <-request.Context().Done():
			return
		}
	}
}
