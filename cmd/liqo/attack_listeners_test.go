// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/network/agent/gateway"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/report"
	"liqo.io/liqo/internal/offloading/caller"
	"liqo.io/liqo/internal/offloading/kubeletapi"
	"liqo.io/liqo/internal/offloading/nameserver"
	"liqo.io/liqo/internal/offloading/serving"
	vk "liqo.io/liqo/internal/offloading/virtualkubelet"
	"liqo.io/liqo/internal/peering/auth/endpoint"
	"liqo.io/liqo/internal/peering/proxy"
)

// chartPort is a TCP port of a role, by its name, or by its number where only a probe names it.
type chartPort struct{ role, port string }

// servedPorts start what serves each port as the role does. An API server is not needed: what is attacked comes before.
var servedPorts = map[chartPort]func(t *testing.T, at string){
	{"controller-manager", "webhook"}: func(t *testing.T, at string) { runManager(t, kubemanager.Options{WebhookPort: portOf(t, at)}) },
	{"controller-manager", "metrics"}: func(t *testing.T, at string) { runManager(t, kubemanager.Options{MetricsAddress: at}) },
	{"controller-manager", "health"}:  func(t *testing.T, at string) { runManager(t, kubemanager.Options{HealthAddress: at}) },
	{"metric-agent", "health"}:        func(t *testing.T, at string) { runManager(t, kubemanager.Options{HealthAddress: at}) },
	{"metric-agent", "https"}:         func(t *testing.T, at string) { runServing(t, at, http.NotFoundHandler()) },
	{"virtual-kubelet", "kubelet"}: func(t *testing.T, at string) {
		runServing(t, at, kubeletapi.New(kubeletapi.Options{Callers: caller.New(nowhere(t))}))
	},
	{"virtual-kubelet", "health"}:  runSmall,
	{"virtual-kubelet", "metrics"}: runSmall,
	{"gateway", "health"}:          runSmall,
	{"gateway", "metrics"}:         runSmall,
	{"route", "5874"}:              runSmall,
	{"gateway", "report"}: func(t *testing.T, at string) {
		kubetest.Start(t, "report", func(ctx context.Context) error { return role.Serve(ctx, at, new(gateway.Gateway).Handler()) })
	},
	{"gateway", "report-tls"}: func(t *testing.T, at string) {
		certificate, err := report.Certificate([32]byte{})
		must(t, err)
		kubetest.Start(t, "report over TLS", func(ctx context.Context) error {
			return role.ServeSecurely(ctx, at, new(gateway.Gateway).Handler(), func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil })
		})
	},
	{"gateway", "stream"}: func(t *testing.T, at string) {
		hub := carrier.New(carrier.Options{Log: logr.Discard()})
		t.Cleanup(func() { hub.Close() })
		server := &carrier.Server{Hub: hub, Path: func(string) bool { return true }, Log: logr.Discard()}
		kubetest.Start(t, "streams", func(ctx context.Context) error { return server.Serve(ctx, listenAt(t, at)) })
	},
	{"auth", "auth"}: func(t *testing.T, at string) {
		certificate, err := authCertificate(authOptions{enableTLS: true, namespace: "liqo"})
		must(t, err)
		kubetest.Start(t, "auth", func(ctx context.Context) error {
			return endpoint.Serve(ctx, func() {}, endpoint.Service(at, http.NotFoundHandler(), certificate, logr.Discard()))
		})
	},
	{"dns", "health"}:   func(t *testing.T, at string) { runManager(t, kubemanager.Options{HealthAddress: at}) },
	{"dns", "metrics"}:  runSmall,
	{"dns", "dns-tcp"}:  runDNSPort,
	{"auth", "health"}:  runHealth,
	{"proxy", "health"}: runHealth,
	{"proxy", "http"}: func(t *testing.T, at string) {
		served, err := proxy.New(proxy.Options{Key: make([]byte, 32), Log: logr.Discard()})
		must(t, err)
		kubetest.Start(t, "proxy", func(ctx context.Context) error { return served.Serve(ctx, listenAt(t, at)) })
	},
}

// securePorts are those that speak TLS.
var securePorts = []chartPort{
	{"controller-manager", "webhook"}, {"metric-agent", "https"}, {"virtual-kubelet", "kubelet"}, {"auth", "auth"}, {"gateway", "report-tls"},
}

const (
	// attackers is the number of connections of one address, each with nearly as many bytes of headers as controller-runtime and net/http accept by default,
	// so that a listener without bounds waits for the rest, and holds them.
	attackers, attackBytes = 200, 15 << 16
	// mostHeap bounds what both ends of the attack hold when nothing moves any more, half of what the smallest of the processes may have: 2 to 13 MiB.
	// While headers still arrive, garbage counts as well, as much as the collector is late, so only growthEnds bounds it: without bounds of the listener, the
	// headers take up fifteen times their size: three GiB.
	mostHeap, growthEnds = 64 << 20, 512 << 20
)

// TestAttackNH1: at each port of the chart, and of the virtual kubelets that the controller manager makes, one address opens 200 connections and sends
// headers without end. The heap stays small, and a client at another address is answered.
func TestAttackNH1(t *testing.T) {
	ports := portsOfTheChart(t)
	for port := range servedPorts {
		if !ports[port] {
			t.Errorf("the chart has no port %v: remove it from servedPorts", port)
		}
	}
	for port := range ports {
		start, known := servedPorts[port]
		if !known {
			t.Errorf("nothing here starts what serves port %v of the chart: add it to servedPorts", port)
			continue
		}
		t.Run(port.role+" "+port.port, func(t *testing.T) {
			at := freeAddress(t)
			start(t, at)
			var config *tls.Config
			if slices.Contains(securePorts, port) {
				config = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the attacker's choice
			}
			ask := honest
			if port == (chartPort{"dns", "dns-tcp"}) {
				ask = honestDNS
			}
			attackHeaders(t, at, config, ask)
		})
	}
}

// attackHeaders plays the attack. ask is what another client does.
func attackHeaders(t *testing.T, at string, config *tls.Config, ask func(context.Context, string, *tls.Config) error) {
	kubetest.Eventually(t, "an answer before the attack", func() error { return ask(t.Context(), at, config) })
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done atomic.Int32
	ended := make(chan struct{}, attackers)
	for range attackers {
		go func() {
			defer func() { ended <- struct{}{} }()
			hold := attackOnce(ctx, at, config)
			done.Add(1)
			<-ctx.Done()
			if hold != nil {
				hold.Close()
			}
		}()
	}
	worst := uint64(0)
	for answered := 0; ctx.Err() == nil && (done.Load() < attackers || answered < 5); {
		if now := heap(); now > before {
			worst = max(worst, now-before)
		}
		if worst > growthEnds {
			t.Errorf("the heap has grown by %d MiB, and would grow on", worst>>20)
			cancel()
			break
		}
		// All share the processors, so a client may be late, and then tries again, as they all do.
		kubetest.Eventually(t, "an answer to another client", func() error { return ask(ctx, at, config) })
		answered++
	}
	if ctx.Err() == nil { // all attackers have sent what they could, and wait
		held := max(heap(), before) - before
		t.Logf("the heap holds %.1f MiB more, and had %.1f MiB more at most", float64(held)/(1<<20), float64(worst)/(1<<20))
		if held > mostHeap {
			t.Errorf("the heap holds %d MiB more after the attack, want at most %d MiB", held>>20, mostHeap>>20)
		}
	}
	cancel()
	for range attackers {
		<-ended
	}
}

// attackOnce sends headers until the server has ended the connection, or has what it accepts.
func attackOnce(ctx context.Context, at string, config *tls.Config) net.Conn {
	connection, err := dialFrom(ctx, "127.0.0.2", at, config)
	if err != nil {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n"); err != nil {
		return connection
	}
	for sent := 0; sent < attackBytes; sent += len(manyLines) {
		if _, err := io.WriteString(connection, manyLines); err != nil {
			break
		}
	}
	return connection
}

var manyLines = strings.Repeat("a:b\r\n", 3<<10)

func dialFrom(ctx context.Context, from, at string, config *tls.Config) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	raw, err := dialer.DialContext(ctx, "tcp", at)
	if err != nil || config == nil {
		return raw, err
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return secure, nil
}

// honest sends a request; any answer will do.
func honest(ctx context.Context, at string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	connection, err := dialFrom(ctx, "127.0.0.1", at, config)
	if err != nil {
		return err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// honestDNS asks for a name; any answer will do.
func honestDNS(ctx context.Context, at string, _ *tls.Config) error {
	asked, err := (&dnsmessage.Message{
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("x."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}).Pack()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	connection, err := dialFrom(ctx, "127.0.0.1", at, nil)
	if err != nil {
		return err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	if _, err := connection.Write(append([]byte{0, byte(len(asked))}, asked...)); err != nil {
		return err
	}
	_, err = io.ReadFull(connection, make([]byte, 2+len(asked)))
	return err
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// portsOfTheChart returns the TCP ports of all containers that the chart and the controller manager make, with and without the options.
func portsOfTheChart(t *testing.T) map[chartPort]bool {
	t.Helper()
	ports := map[chartPort]bool{}
	for _, golden := range []string{
		"deployments/liqo/testdata/default", "deployments/liqo/testdata/full", "deployments/liqo/testdata/network",
		"internal/offloading/kubelet/testdata/kubelet_default", "internal/offloading/kubelet/testdata/kubelet_full",
	} {
		text, err := os.ReadFile("../../" + golden + ".yaml")
		must(t, err)
		for _, document := range strings.Split(string(text), "---\n") {
			var object struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			must(t, yaml.Unmarshal([]byte(document), &object))
			for _, container := range object.Spec.Template.Spec.Containers {
				for _, port := range container.Ports {
					if port.Protocol != corev1.ProtocolUDP { // the tunnels, where WireGuard answers no packet without a key
						ports[chartPort{container.Args[0], port.Name}] = true
					}
				}
				for _, port := range probed(container) {
					ports[chartPort{container.Args[0], port}] = true
				}
			}
		}
	}
	return ports
}

// probed returns the ports of probes that the container does not list: names, or numbers.
func probed(container corev1.Container) (ports []string) {
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		if probe == nil || probe.HTTPGet == nil {
			continue
		}
		listed := slices.ContainsFunc(container.Ports, func(port corev1.ContainerPort) bool {
			at := probe.HTTPGet.Port
			return at.Type == intstr.String && port.Name == at.StrVal || at.Type == intstr.Int && port.ContainerPort == at.IntVal
		})
		if !listed {
			ports = append(ports, probe.HTTPGet.Port.String())
		}
	}
	return ports
}

// runManager runs a manager without an API server.
func runManager(t *testing.T, o kubemanager.Options) {
	t.Helper()
	o.Scheme, o.SkipNameValidation = clientgoscheme.Scheme, true
	if o.WebhookPort != 0 {
		o.WebhookCertDir = t.TempDir()
		public, private, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
		must(t, err)
		for name, text := range map[string][]byte{"tls.crt": public, "tls.key": private, "path": []byte(strings.Repeat("x", 32))} {
			must(t, os.WriteFile(filepath.Join(o.WebhookCertDir, name), text, 0o600))
		}
	}
	manager, err := kubemanager.New(&rest.Config{Host: "127.0.0.1:1"}, o)
	must(t, err)
	if o.WebhookPort != 0 {
		manager.GetWebhookServer().Register("/hook", http.NotFoundHandler())
	}
	kubetest.Start(t, "manager", manager.Start)
}

// runServing serves as the virtual kubelet and the metric-agent do.
func runServing(t *testing.T, at string, handler http.Handler) {
	t.Helper()
	certificate, err := serving.New(serving.Names{Common: "x"})
	must(t, err)
	kubetest.Start(t, "server", func(ctx context.Context) error {
		return serving.Serve(ctx, listenAt(t, at), certificate.Get, caller.New(nowhere(t)).Certified, handler)
	})
}

func runSmall(t *testing.T, at string) {
	kubetest.Start(t, "server", func(ctx context.Context) error { return role.Serve(ctx, at, http.NotFoundHandler()) })
}

func runHealth(t *testing.T, at string) {
	kubetest.Start(t, "probes", func(ctx context.Context) error {
		return endpoint.Serve(ctx, func() {}, endpoint.Health(at, func(context.Context) error { return nil }))
	})
}

// runDNSPort serves as the name server does, before it knows any pod.
func runDNSPort(t *testing.T, at string) {
	served, err := nameserver.New(nameserver.Options{
		Callers: nameserver.NewCallers(), Upstreams: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")},
		Limits: nameserver.Limits{Hold: 1}, Log: logr.Discard(),
	})
	must(t, err)
	kubetest.Start(t, "name server", func(ctx context.Context) error {
		datagrams, connections, err := openDNS(ctx, at)
		if err != nil {
			return err
		}
		return served.Serve(ctx, datagrams, connections)
	})
}

// nowhere is a client of an API server that does not answer.
func nowhere(t *testing.T) client.Client {
	t.Helper()
	made, err := vk.NewClient(&rest.Config{Host: "127.0.0.1:1"})
	must(t, err)
	return made
}

func listenAt(t *testing.T, at string) net.Listener {
	t.Helper()
	made, err := net.Listen("tcp", at)
	must(t, err)
	return made
}

func portOf(t *testing.T, at string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(at)
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	return port
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", t.Name(), err))
	}
}
