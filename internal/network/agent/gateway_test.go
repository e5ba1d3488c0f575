// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/agent/gateway"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/report"
)

const keysSecret = "liqo-gateway-keys"

func (e *env) gateway() *gateway.Gateway {
	e.t.Helper()
	g, err := gateway.New(e.cfg, e.host, gateway.Options{
		Namespace: namespace, KeysSecret: keysSecret, Node: "n1", Address: netip.MustParseAddr("10.10.1.10"), ListenPort: 5871, Log: logr.Discard(),
		Uplink: func() (string, int, error) { return "eth0", 1500, nil },
		Keys: &gateway.Keyring{Read: func(secret *corev1.Secret, _ int) (gateway.Key, bool, error) {
			key, ok := secret.Data["key"]
			return gateway.Key{Public: string(key)}, ok, nil
		}},
	})
	e.must(err)
	return g
}

// lines are the lines that a reader of the report receives.
type lines struct {
	t   *testing.T
	in  *bufio.Scanner
	end func()
}

func read(t *testing.T, handler http.Handler) *lines {
	t.Helper()
	server := httptest.NewServer(handler)
	response, err := http.Get(server.URL + report.Path)
	if err != nil {
		t.Fatal(err)
	}
	l := &lines{t: t, in: bufio.NewScanner(response.Body), end: func() { response.Body.Close(); server.CloseClientConnections(); server.Close() }}
	t.Cleanup(l.end)
	return l
}

// until reads lines until check holds for one.
func (l *lines) until(what string, check func(report.Gateway) bool) report.Gateway {
	l.t.Helper()
	var reported report.Gateway
	for deadline := time.Now().Add(kubetest.InTime); time.Now().Before(deadline) && l.in.Scan(); {
		reported = report.Gateway{}
		if err := json.Unmarshal(l.in.Bytes(), &reported); err != nil {
			l.t.Fatal(err)
		}
		if check(reported) {
			return reported
		}
	}
	l.t.Fatalf("%s: the last line was %+v (%v)", what, reported, l.in.Err())
	return reported
}

func isUp(reported report.Gateway) bool { return len(reported.Peers) == 1 && reported.Peers[0].Up }

func TestGateway(t *testing.T) {
	if !isolated(t) {
		return
	}
	e := newEnv(t, "gateway")
	g := e.gateway()
	stop := e.start(g.Run)
	e.until("ready without peers", func(hoststate.State) bool { return g.Ready() })

	// Without a key of its own the gateway changes nothing, and reports why.
	tunnel := e.tunnelTo("milan", lane(0, publicKey("milan")))
	reported := read(t, g.Handler())
	reported.until("no key", func(s report.Gateway) bool { return strings.Contains(s.Error, keysSecret) })
	if state := e.host.now(); len(state.Links) != 0 {
		t.Fatalf("planned without a key:\n%s", state)
	}
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: keysSecret}, Data: map[string][]byte{"key": []byte(publicKey("rome"))}})
	e.until("the tunnel", func(s hoststate.State) bool { return slices.Equal(keysOf(s), []string{publicKey("milan")}) })
	if tunnel := e.host.now().WireGuard; tunnel.PublicKey != publicKey("rome") || tunnel.Peers[0].Endpoint.String() != "203.0.113.1:5871" {
		t.Errorf("tunnel %+v", tunnel)
	}
	first := e.host.now().WireGuard.Peers[0].Dial
	e.until("dialled again, as no peer answers", func(s hoststate.State) bool { return s.WireGuard.Peers[0].Dial > first })

	// Milan's gateway, as far as probes are concerned, and one of our nodes.
	milan := func() (stop func()) {
		return e.start(probe.New(probe.Options{}).AimAt(probe.Aim{Local: netip.MustParseAddr("10.71.0.1"), Pace: probe.Pace{Up: time.Second, Other: time.Second}}).
			Run)
	}
	stopMilan := milan()
	e.start(probe.New(probe.Options{}).AimAt(probe.Aim{
		Targets: []probe.Target{{ClusterID: "milan", Address: netip.MustParseAddr("10.71.0.1")}}, Pace: probe.Pace{Up: time.Second, Other: time.Second},
		Node: "n1", Gateways: []netip.Addr{netip.MustParseAddr("10.70.0.1")}, Observations: []probe.Observation{{ClusterID: "milan", Lane: 0, Up: []int{0}}},
	}).Run)
	e.host.shake(publicKey("milan"))
	line := reported.until("all is known", func(s report.Gateway) bool {
		return isUp(s) && s.Peers[0].MTU == 1420 && s.Peers[0].HandshakeSeconds >= 0 && len(s.Peers[0].Nodes) == 1 && s.Peers[0].Nodes[0].SilentMilliseconds >= 0
	})
	peer := line.Peers[0]
	if line.Error != "" || line.PublicKey != publicKey("rome") || peer.Generation != tunnel.Generation || peer.RemoteKey != publicKey("milan") ||
		peer.Endpoint != "203.0.113.1:5871" || peer.Problem != "" || peer.Nodes[0].Name != "n1" ||
		!slices.Equal(peer.Nodes[0].LanesUp, []int{0}) || peer.RTTMicroseconds <= 0 {
		t.Errorf("report %+v", line)
	}
	checkMetrics(t, g)
	checkSnapshot(t, g)

	// While the peer is up, the gateway does not dial; after silence it does (dial_test.go judges when).
	dial := e.host.now().WireGuard.Peers[0].Dial
	for range 3 {
		reported.until("a line", func(report.Gateway) bool { return true })
	}
	if now := e.host.now().WireGuard.Peers[0].Dial; now != dial {
		t.Errorf("dialled although the tunnel works")
	}
	stopMilan()
	e.until("dialled again", func(s hoststate.State) bool { return s.WireGuard.Peers[0].Dial > dial })
	reported.until("down", func(s report.Gateway) bool { return !isUp(s) })
	milan()
	reported.until("up again", isUp)

	// A new key is accepted beside the old one, until it is used.
	tunnel.Spec.Lanes[0].PublicKey = publicKey("milan2")
	e.must(e.Update(t.Context(), tunnel))
	e.until("both keys", func(s hoststate.State) bool { return len(keysOf(s)) == 2 })
	e.host.shake(publicKey("milan2"))
	e.until("the new key", func(s hoststate.State) bool { return slices.Equal(keysOf(s), []string{publicKey("milan2")}) })

	// Without an API server the gateway goes on; it applies what changed meanwhile afterwards.
	e.wire.cut()
	e.must(e.Delete(t.Context(), tunnel))
	for range 5 {
		if line := reported.until("a line without an API server", isUp); line.Error != "" {
			t.Errorf("error %s", line.Error)
		}
	}
	if !g.Ready() || !g.Alive() || len(keysOf(e.host.now())) != 1 {
		t.Errorf("ready %v, alive %v, host\n%s", g.Ready(), g.Alive(), e.host.now())
	}
	e.wire.mend()
	e.until("nothing is left", func(s hoststate.State) bool { return s.String() == hoststate.State{}.String() })
	stop()
}

func checkMetrics(t *testing.T, g *gateway.Gateway) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(g); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = fmt.Sprint(metric.GetGauge().GetValue() + metric.GetCounter().GetValue())
		}
	}
	const peer = " milan milan liqo.tunnel wireguard"
	for name, want := range map[string]string{
		"liqo_peer_receive_bytes_total" + peer: "7", "liqo_peer_transmit_bytes_total" + peer: "8", "liqo_peer_is_connected" + peer: "1",
		"liqo_peer_mtu_bytes" + peer: "1420", "liqo_wireguard_implementation wireguard userspace": "1",
		"liqo_peer_carrier UDP" + peer: "1", "liqo_peer_stream_receive_bytes_total" + peer: "0", "liqo_peer_stream_transmit_bytes_total" + peer: "0",
		"liqo_peer_stream_dropped_packets_total" + peer: "0", "liqo_peer_stream_oversized_packets_total" + peer: "0",
		"liqo_peer_latency_us" + peer: "", "liqo_peer_handshake_age_seconds" + peer: "",
		"liqo_probe_loss_ratio milan milan gateway-gateway ": "", "liqo_probe_loss_ratio   node-gateway n1": "0",
	} {
		if value, ok := got[name]; !ok || want != "" && value != want {
			t.Errorf("metric %q is %q (there: %v), want %q", name, value, ok, want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("unexpected metrics: %v", got)
	}
}

func checkSnapshot(t *testing.T, g *gateway.Gateway) {
	t.Helper()
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL+"/snapshot", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"clusterID: milan", "remotePods: 10.11.0.0/16", hoststate.TunnelLink, "applied: true"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("/snapshot lacks %q:\n%s", want, text)
		}
	}
}

// A peer whose networks are refused gets no packet, not even a probe, and other peers are not affected.
func TestGatewayRefusesPeer(t *testing.T) {
	if !isolated(t) {
		return
	}
	e := newEnv(t, "gateway")
	e.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: keysSecret}, Data: map[string][]byte{"key": []byte(publicKey("rome"))}})
	e.tunnelTo("milan", lane(0, publicKey("milan")))
	bad := e.tunnelTo("paris", lane(0, publicKey("paris")))
	bad.Spec.RemotePodCIDR, bad.Spec.RemoteExternalCIDR = "10.10.1.0/24", "10.12.0.0/16" // our node's
	e.must(e.Update(t.Context(), bad))
	e.start(probe.New(probe.Options{}).AimAt(probe.Aim{Local: netip.MustParseAddr("10.71.0.1"), Pace: probe.Pace{Up: time.Second, Other: time.Second}}).Run)
	e.start(probe.New(probe.Options{}).AimAt(probe.Aim{Local: netip.MustParseAddr("10.12.0.1"), Pace: probe.Pace{Up: time.Second, Other: time.Second}}).Run)
	g := e.gateway()
	e.start(g.Run)
	line := read(t, g.Handler()).until("milan is up, paris is refused", func(s report.Gateway) bool {
		return len(s.Peers) == 2 && s.Peers[0].Up && s.Peers[1].Problem != ""
	})
	if line.Error != "" || line.Peers[1].Up || !strings.Contains(line.Peers[1].Problem, "10.10.1.0/24") {
		t.Errorf("report %+v", line)
	}
	if state := e.host.now().String(); strings.Contains(state, "10.12.") {
		t.Errorf("the refused network is planned:\n%s", state)
	}
}
