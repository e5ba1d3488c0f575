// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/kubetest/refusals"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/report"
	"liqo.io/liqo/internal/network/signature"
)

const (
	home = "liqo"
	user = "network-test"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	os.Exit(m.Run())
}

// setApart is a pool among the addresses that peers announce: what they announce in it is used as it is, if it is free.
var setApart = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}

// bench is a real API server with the controllers under test. The test plays the peers and the gateways.
type bench struct {
	kubetest.Env
	scheme *runtime.Scheme
	admin  *rest.Config
	// writes are the write requests of the controllers.
	writes  requests
	denied  refusals.Log
	port    int
	options Options
	// keys are those of this cluster.
	keys clusterkey.Keys
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	b := &bench{Env: kubetest.Env{T: t}, admin: kubetest.Cluster(t), scheme: runtime.NewScheme(), options: Options{
		Local: discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}, Namespace: home,
		Pools: pools.Options{
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		},
	}}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, discoveryv1alpha1.AddToScheme, netv1alpha1.AddToScheme} {
		b.Must(add(b.scheme))
	}
	crds := "../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(b.admin, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "discovery.liqo.io_foreignclusters.yaml", crds + "net.liqo.io_networkconfigs.yaml", crds + "net.liqo.io_tunnelendpoints.yaml", crds + "net.liqo.io_ipmappings.yaml",
		crds + "net.liqo.io_nodereports.yaml",
	}})
	b.Must(err)
	b.Client, err = client.New(b.admin, client.Options{Scheme: b.scheme})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}})
	b.keys, err = clusterkey.Generate()
	b.Must(err)
	b.Make(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: clusterkey.Secret}, Data: b.keys.Data()})
	b.Bind(user, "", b.rights(""))
	b.Bind(user, home, b.rights("liqo"))
	t.Cleanup(func() {
		if refused := b.denied.All(); len(refused) > 0 {
			t.Errorf("refused: %q", refused)
		}
	})
	return b
}

// run starts the controllers; they end with stop, or with the test.
func (b *bench) run() (stop func()) {
	b.T.Helper()
	cfg := rest.CopyConfig(b.admin)
	cfg.Impersonate.UserName = user
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodGet {
				b.writes.add(request)
			}
			return next.RoundTrip(request)
		})
	})
	cfg.Wrap(b.denied.RoundTripper)
	mgr, err := manager.New(cfg, manager.Options{Scheme: b.scheme, SkipNameValidation: true})
	b.Must(err)
	b.options.Gateways.ReportPort = b.port
	b.Must(Setup(mgr, b.options))
	return kubetest.Start(b.T, "manager", mgr.Start)
}

// requests is a list of methods and paths.
type requests struct {
	mu  sync.Mutex
	all []string
}

func (r *requests) add(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, request.Method+" "+request.URL.Path)
}

// count returns how many requests there are.
func (r *requests) count() int { return len(r.since(0)) }

// since returns the requests after the first n.
func (r *requests) since(n int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all[n:])
}

// there reports whether an object exists, and reads it.
func (b *bench) there(object client.Object) bool {
	b.T.Helper()
	err := b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object)
	b.Must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// expectNoWrites waits until the controllers send no write for a while, and fails if that does not happen. It is the one place that waits for
// nothing to happen, which needs time; a write that is already on its way may still come.
func (b *bench) expectNoWrites(what string, during time.Duration) {
	b.T.Helper()
	before, began := b.writes.count(), time.Now()
	for {
		last := b.writes.count()
		time.Sleep(during)
		now := b.writes.count()
		if now == last {
			return
		}
		if took := time.Since(began); took > kubetest.InTime {
			b.T.Errorf("%s: %d writes in %s", what, now-before, took)
			return
		}
	}
}

// rights returns what the controllers may do in a namespace, by their markers.
func (b *bench) rights(namespace string) (all []rbacv1.PolicyRule) {
	for _, folder := range []string{"gateways", "ipmapping", "keys", "networkconfig", "nodereport", "nodes", "pools", "spread", "tenants", "trust", "tunnelendpoint"} {
		all = append(all, b.RBACMarkers(folder + "/*.go")[namespace]...)
	}
	return all
}

// peer is the objects of one remote cluster in this cluster.
type peer struct {
	*bench
	id     discoveryv1alpha1.ClusterIdentity
	fc     *discoveryv1alpha1.ForeignCluster
	ours   *netv1alpha1.NetworkConfig
	copy   *netv1alpha1.NetworkConfig
	tunnel *netv1alpha1.TunnelEndpoint
	// keys are those of the peer, version that of the network that it published last.
	keys    clusterkey.Keys
	version int64
}

// peer creates a ForeignCluster with its tenant namespace, without a peering.
func (b *bench) peer(name string) *peer {
	b.T.Helper()
	id := discoveryv1alpha1.ClusterIdentity{ClusterID: name + "-id", ClusterName: name}
	at := metav1.ObjectMeta{Namespace: id.TenantNamespace(), Name: id.UniqueName()}
	keys, err := clusterkey.Generate()
	b.Must(err)
	p := &peer{
		bench: b, id: id, keys: keys,
		fc: &discoveryv1alpha1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.ClusterID: id.ClusterID}},
			Spec: discoveryv1alpha1.ForeignClusterSpec{
				ClusterIdentity: &id, ForeignAuthURL: "https://" + name, ClusterKey: keys.Fingerprint(), OutgoingPeeringEnabled: discoveryv1alpha1.PeeringNo,
			},
		},
		ours:   &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: b.options.Local.NetworkConfigName()}},
		tunnel: &netv1alpha1.TunnelEndpoint{ObjectMeta: at},
	}
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at.Namespace}})
	b.Bind(user, at.Namespace, b.rights("liqo-tenant"))
	b.Make(p.fc)
	b.EditStatus(p.fc, func() { p.fc.Status.TenantNamespace.Local = at.Namespace })
	return p
}

func (p *peer) outgoing(status discoveryv1alpha1.PeeringConditionStatus) {
	p.T.Helper()
	p.EditStatus(p.fc, func() {
		p.fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{{
			Type: discoveryv1alpha1.OutgoingPeering, Status: status, LastTransitionTime: metav1.Now(),
		}}
	})
}

// testKey returns a public key.
func testKey(n byte) string {
	key := [keyring.Size]byte{n, 1, 2, 3}
	text, _ := json.Marshal(key[:]) // base64 in quotes
	return strings.Trim(string(text), `"`)
}

// reports creates the copy of the peer's NetworkConfig, as the peer would.
func (p *peer) reports(pods, external string, key byte) {
	p.T.Helper()
	p.copy = p.claims(pods, external, key)
	p.Make(p.copy)
}

func (p *peer) claims(pods, external string, key byte) *netv1alpha1.NetworkConfig {
	config := &netv1alpha1.NetworkConfig{
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
	p.sign(&config.Spec)
	return config
}

// sign signs a new version of the peer's network, as the peer would.
func (p *peer) sign(spec *netv1alpha1.NetworkConfigSpec) {
	p.version++
	spec.Version = p.version
	spec.Signatures = signature.Config(p.keys, p.id.ClusterID, spec)
}

// amend changes the copy of the peer's NetworkConfig, as the peer would.
func (p *peer) amend(change func(*netv1alpha1.NetworkConfigSpec)) {
	p.T.Helper()
	p.Edit(p.copy, func() {
		change(&p.copy.Spec)
		p.sign(&p.copy.Spec)
	})
}

// answers writes the status of ours as the peer would.
func (p *peer) answers(pods, external string) {
	p.T.Helper()
	p.Until("our network is published", func() bool { return p.there(p.ours) })
	p.EditStatus(p.ours, func() {
		p.ours.Status.Processed, p.ours.Status.PodCIDRNAT, p.ours.Status.ExternalCIDRNAT = true, pods, external
		p.ours.Status.ObservedGeneration = p.ours.Generation
		p.ours.Status.Signatures = signature.Answer(p.keys, signature.Exchange{
			Asker: p.options.Local.ClusterID, Answerer: p.id.ClusterID, Config: &p.ours.Spec, Answer: &p.ours.Status,
		})
	})
}

// decided waits until the copy has the condition.
func (p *peer) decided(reason, part string) {
	p.T.Helper()
	var condition metav1.Condition
	defer func() {
		if p.T.Failed() {
			p.T.Logf("condition %+v", condition)
		}
	}()
	p.Until("copy of "+p.id.ClusterName+" is "+reason+" "+part, func() bool {
		p.Read(p.copy)
		if found := meta.FindStatusCondition(p.copy.Status.Conditions, netv1alpha1.ConditionReady); found != nil {
			condition = *found
		}
		return condition.Reason == reason && strings.Contains(condition.Message, part) && condition.ObservedGeneration == p.copy.Generation
	})
}

// seen waits until our answer holds these prefixes.
func (p *peer) seen(pods, external string) {
	p.T.Helper()
	p.Until(fmt.Sprintf("%s is reached as %s and %s", p.id.ClusterName, pods, external), func() bool {
		p.Read(p.copy)
		now := p.copy.Status
		return now.Processed && now.PodCIDRNAT == pods && now.ExternalCIDRNAT == external && now.ObservedGeneration == p.copy.Generation
	})
}

// published waits for the condition of our own NetworkConfig.
func (p *peer) published(reason, part string) {
	p.T.Helper()
	var condition metav1.Condition
	defer func() {
		if p.T.Failed() {
			p.T.Logf("condition %+v", condition)
		}
	}()
	p.Until("ours for "+p.id.ClusterName+" is "+reason+" "+part, func() bool {
		if !p.there(p.ours) {
			return false
		}
		if found := meta.FindStatusCondition(p.ours.Status.Conditions, netv1alpha1.ConditionPublished); found != nil {
			condition = *found
		}
		return condition.Reason == reason && strings.Contains(condition.Message, part)
	})
}

// connected waits for the condition of the tunnel.
func (p *peer) connected(status netv1alpha1.ConnectionStatus, reason, part string) {
	p.T.Helper()
	var condition metav1.Condition
	defer func() {
		if p.T.Failed() {
			p.T.Logf("condition %+v, %+v", condition, p.tunnel.Status.Connection)
		}
	}()
	p.Until(fmt.Sprintf("tunnel to %s is %s %s %s", p.id.ClusterName, status, reason, part), func() bool {
		if !p.there(p.tunnel) {
			return false
		}
		if found := meta.FindStatusCondition(p.tunnel.Status.Conditions, netv1alpha1.ConditionConnected); found != nil {
			condition = *found
		}
		is := metav1.ConditionFalse
		if status == netv1alpha1.Connected {
			is = metav1.ConditionTrue
		}
		return p.tunnel.Status.Connection.Status == status && condition.Status == is && condition.Reason == reason && strings.Contains(condition.Message, part)
	})
}

// service creates the Service of a lane.
func (b *bench) service(lane int, kind corev1.ServiceType) *corev1.Service {
	b.T.Helper()
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
	b.Make(service)
	return service
}

func (b *bench) node(name, address string, ready bool) *corev1.Node {
	b.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Make(node)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	b.EditStatus(node, func() {
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

	mu       sync.Mutex
	reported report.Gateway
	tick     chan struct{}
	mute     bool
}

func (b *bench) gateway(lane int, node string) *gateway {
	b.T.Helper()
	g := &gateway{bench: b, tick: make(chan struct{}), reported: report.Gateway{Lane: lane, Node: node, Implementation: "userspace"}}
	address := fmt.Sprintf("127.0.1.%d", lane+1)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(b.port)))
	b.Must(err)
	b.port = listener.Addr().(*net.TCPAddr).Port
	g.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: g}}
	g.server.Start()
	b.T.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	g.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: fmt.Sprintf("liqo-gateway-%d-abc", lane), Labels: map[string]string{
			labels.Gateway: labels.GatewayActive, labels.GatewayLane: strconv.Itoa(lane),
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "gateway", Image: "i"}}},
	}
	b.Make(g.pod)
	b.EditStatus(g.pod, func() {
		g.pod.Status.Phase, g.pod.Status.PodIP, g.pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	})
	return g
}

// reports changes the report and sends it at once.
func (g *gateway) reports(change func(*report.Gateway)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.reported)
	close(g.tick)
	g.tick = make(chan struct{})
}

// hang makes the gateway keep its connection without sending.
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
		line, err := json.Marshal(g.reported)
		tick, mute := g.tick, g.mute
		for i := range g.reported.Peers {
			g.reported.Peers[i].HandshakeSeconds++ // ages grow
			g.reported.Peers[i].RTTMicroseconds += 10
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
