// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/reach"
)

// Each test of a role runs as a process in a network namespace of its own, in which all of 10.0.0.0/8 is local: so the gateways of two
// clusters probe each other under their real addresses.
const isolatedVariable = "LIQO_TEST_ISOLATED"

const (
	namespace = "liqo"
	// nodeExternal is the address of node n1 in rome's external network.
	nodeExternal = "10.70.1.0"
)

func TestMain(m *testing.M) {
	log.SetLogger(klog.Background())
	if os.Getenv(isolatedVariable) != "" {
		if err := furnish(); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func furnish() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	node, err := netlink.ParseAddr(nodeExternal + "/32")
	if err != nil {
		return err
	}
	_, all, err := net.ParseCIDR("10.0.0.0/8")
	if err != nil {
		return err
	}
	err = errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, node), netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: all, Type: syscall.RTN_LOCAL, Table: syscall.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST, Src: node.IP,
	}))
	if err != nil {
		return err
	}
	// An API server wants to see a way out.
	out := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out"}, PeerName: "far"}
	address, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkAdd(out), netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "far"}}),
		netlink.AddrAdd(out, address), netlink.LinkSetUp(out),
		netlink.RouteAdd(&netlink.Route{LinkIndex: out.Index, Gw: net.IPv4(192, 0, 2, 254)}))
}

// isolated runs the test again in a process with its own network namespace. It returns true in that process.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedVariable) != "" {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: network namespaces need root")
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), isolatedVariable+"=yes")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	output, err := command.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(output), "--- SKIP") {
		t.Skip("NOT RUN: see above")
	}
	return false
}

// env is a cluster and one role with the rights of the chart.
type env struct {
	client.Client
	t     *testing.T
	admin *rest.Config
	// cfg is the config of the role, over a wire that can be cut.
	cfg  *rest.Config
	wire *wire
	host *memory
}

func newEnv(t *testing.T, role string) *env {
	t.Helper()
	e := &env{t: t, admin: kubetest.Cluster(t), host: &memory{changed: make(chan struct{})}}
	scheme := runtime.NewScheme()
	e.must(errors.Join(clientgoscheme.AddToScheme(scheme), netv1alpha1.AddToScheme(scheme)))
	crds := "../../../deployments/liqo/crds/net.liqo.io_"
	_, err := envtest.InstallCRDs(e.admin, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{crds + "tunnelendpoints.yaml", crds + "ipmappings.yaml", crds + "nodereports.yaml"},
	})
	e.must(err)
	e.Client, err = client.New(e.admin, client.Options{Scheme: scheme})
	e.must(err)
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	e.bind(role)
	e.wire = newWire(t, e.admin.Host)
	e.cfg = rest.CopyConfig(e.admin)
	e.cfg.Host, e.cfg.Impersonate.UserName = "https://"+e.wire.address, role
	e.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.10.1.0/24"}}})
	node := &corev1.Node{}
	e.must(e.Get(t.Context(), client.ObjectKey{Name: "n1"}, node))
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.1.11"}}
	e.must(e.Status().Update(t.Context(), node))
	return e
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) create(object client.Object) {
	e.t.Helper()
	e.must(e.Create(e.t.Context(), object))
}

// bind gives the role its rights from the chart.
func (e *env) bind(role string) {
	e.t.Helper()
	text, err := os.ReadFile("../../../deployments/liqo/files/rbac-" + role + ".yaml")
	e.must(err)
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: role}}
	for _, document := range strings.Split(string(text), "---\n")[1:] {
		var in rbacv1.ClusterRole
		e.must(yaml.Unmarshal([]byte(document), &in))
		meta := metav1.ObjectMeta{Name: role}
		reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: in.Kind, Name: role}
		if in.Kind == "ClusterRole" {
			e.create(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: in.Rules})
			e.create(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: reference})
			continue
		}
		meta.Namespace = namespace
		e.create(&rbacv1.Role{ObjectMeta: meta, Rules: in.Rules})
		e.create(&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: reference})
	}
}

// gatewayPod creates the pod of a lane.
func (e *env) gatewayPod(lane int) {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("liqo-gateway-%d", lane), Labels: map[string]string{
			labels.Gateway: labels.GatewayActive, labels.GatewayLane: fmt.Sprint(lane),
		}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(0))},
	}
	e.create(pod)
	address := fmt.Sprintf("10.10.1.%d", 10+lane)
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	e.must(e.Status().Update(e.t.Context(), pod))
}

// tunnelTo creates the tunnel endpoint to the other cluster: rome is 10.10/16 and 10.70/16, milan 10.11/16 and 10.71/16.
func (e *env) tunnelTo(peer string, lanes ...netv1alpha1.Lane) *netv1alpha1.TunnelEndpoint {
	e.t.Helper()
	us, them := []netv1alpha1.CIDR{"10.10.0.0/16", "10.70.0.0/16"}, []netv1alpha1.CIDR{"10.11.0.0/16", "10.71.0.0/16"}
	if peer == "rome" {
		us, them = them, us
	}
	tunnel := &netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: peer, Labels: map[string]string{labels.TunnelCluster: peer}},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: peer, ClusterName: peer},
			LocalPodCIDR:    us[0], LocalExternalCIDR: us[1], RemotePodCIDR: them[0], RemoteExternalCIDR: them[1],
			EndpointIP: "203.0.113.1", BackendType: "wireguard", BackendConfig: map[string]string{}, Lanes: lanes,
		},
	}
	e.create(tunnel)
	return tunnel
}

func lane(number int32, key string) netv1alpha1.Lane {
	return netv1alpha1.Lane{Number: number, PublicKey: key, Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{"203.0.113.1"}, Port: 5871}}}
}

func publicKey(name string) string {
	raw := [32]byte{}
	copy(raw[:], name)
	return base64.StdEncoding.EncodeToString(raw[:])
}

// until waits until check holds, given the state that was applied last.
func (e *env) until(what string, check func(hoststate.State) bool) {
	e.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(kubetest.InTime)
	for !check(e.host.now()) {
		select {
		case <-tick.C:
		case <-deadline:
			e.t.Fatalf("not within %s: %s; the host is\n%s", kubetest.InTime, what, e.host.now())
		}
	}
}

// start runs a role until stop is called.
func (e *env) start(run func(context.Context) error) (stop func()) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				e.t.Errorf("the role stopped with an error: %v", err)
			}
		case <-time.After(kubetest.InTime):
			e.t.Error("the role does not stop")
		}
	})
	e.t.Cleanup(stop)
	return stop
}

// memory is a host in memory.
type memory struct {
	changed chan struct{}

	mu         sync.Mutex
	applied    func(hoststate.State)
	state      hoststate.State
	reaches    reach.Facts
	handshakes map[string]time.Time
}

func (m *memory) Apply(_ context.Context, state hoststate.State) ([]host.Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
	if m.applied != nil {
		m.applied(state)
	}
	return nil, nil
}

func (m *memory) Changed() <-chan struct{} { return m.changed }

func (m *memory) NextHops() (map[netip.Prefix]netip.Addr, error) {
	ways := map[netip.Prefix]netip.Addr{}
	for _, route := range m.now().Routes {
		if route.Via.IsValid() {
			ways[route.To] = route.Via
		}
	}
	return ways, nil
}

func (m *memory) Reaches() (reach.Facts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reaches, nil
}

func (m *memory) Implementation() string { return "userspace" }

func (m *memory) Tunnel() (all []host.TunnelPeer, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.WireGuard != nil {
		for _, peer := range m.state.WireGuard.Peers {
			all = append(all, host.TunnelPeer{
				PublicKey: peer.PublicKey, Endpoint: peer.Endpoint, LastHandshake: m.handshakes[peer.PublicKey], ReceiveBytes: 7, TransmitBytes: 8,
			})
		}
	}
	return all, nil
}

func (m *memory) now() hoststate.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// watch calls visit for each state that is applied from now on.
func (m *memory) watch(visit func(hoststate.State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = visit
}

// shake records a handshake with the owner of a key.
func (m *memory) shake(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handshakes == nil {
		m.handshakes = map[string]time.Time{}
	}
	m.handshakes[key] = time.Now()
}

func keysOf(state hoststate.State) (keys []string) {
	if state.WireGuard != nil {
		for _, peer := range state.WireGuard.Peers {
			keys = append(keys, peer.PublicKey)
		}
	}
	slices.Sort(keys)
	return keys
}

// wire is a proxy to the API server that can be cut.
type wire struct {
	t       *testing.T
	address string
	server  string

	listener net.Listener

	mu sync.Mutex
	// down: connections are closed at once. The port stays taken, so that no other process gets it meanwhile.
	down  bool
	conns []net.Conn
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	if parsed, err := url.Parse(server); err == nil && parsed.Host != "" {
		server = parsed.Host
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, address: listener.Addr().String(), server: server, listener: listener}
	t.Cleanup(func() { _ = listener.Close(); w.cut() })
	go w.serve()
	return w
}

func (w *wire) serve() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil {
			conn.Close()
			continue
		}
		w.mu.Lock()
		if w.down {
			conn.Close()
			server.Close()
		} else {
			w.conns = append(w.conns, conn, server)
			go func() { _, _ = io.Copy(conn, server); conn.Close() }()
			go func() { _, _ = io.Copy(server, conn); server.Close() }()
		}
		w.mu.Unlock()
	}
}

// mend lets new connections pass again.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
}
