// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
	"liqo.io/liqo/test/env/wireguard"
)

// path is a network path from a client to a server.
type path struct {
	name           string
	client, server netns.Place
	address        netip.Addr // of the server, as the client sees it
	port           int        // of iperf3; that of HTTP is the next one
}

// barePort is where bare WireGuard listens in a gateway's pod.
const barePort = 51872

// baselines are the paths that do not use Liqo.
func baselines(t *testing.T, clusters *env.Env, consumer, provider *env.Cluster) []path {
	t.Helper()
	client, server := consumer.Nodes[len(consumer.Nodes)-1], provider.Nodes[len(provider.Nodes)-1]
	tunnel := wireguard.Pair(t, clusters, [2]netns.Place{client.Net(), server.Net()}, netip.AddrPortFrom(server.Address, barePort-1), barePort-1)
	return []path{
		{"plain, node to node", client.Net(), server.Net(), server.Address, 5301},
		{"bare wireguard-go, node to node", client.Net(), server.Net(), tunnel, 5301},
	}
}

// Names of Liqo's paths, and of the one that they are compared with.
const (
	tunnelName = "bare wireguard-go, gateway pod to gateway pod"
	onName     = "pod to pod, on the gateways' nodes"
	offName    = "pod to pod, off the gateways' nodes"
)

// liqoPaths are the paths between pods, and a bare WireGuard tunnel between the gateways' pods: Liqo's own tunnel accepts only probes to a
// gateway.
func liqoPaths(t *testing.T, clusters *env.Env, consumer, provider *env.Cluster) []path {
	t.Helper()
	from, to := gateway(t, consumer), gateway(t, provider)
	provider.Apply(t, service)
	t.Cleanup(func() { provider.Kubectl(t, "-n", "liqo", "delete", "service", "bench") })
	text := provider.Kubectl(t, "-n", "liqo", "get", "service", "bench", "-o", "jsonpath={.spec.ports[0].nodePort}")
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	tunnel := wireguard.Pair(
		t, clusters, [2]netns.Place{beside(t, from, "liqo"), beside(t, to, "liqo")}, netip.AddrPortFrom(to.Node.Address, uint16(port)), barePort,
	)
	paths := []path{{tunnelName, beside(t, from, "liqo"), beside(t, to, "liqo"), tunnel, 5301}}
	view, err := networks.See(consumer, provider)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		name string
		on   bool
	}{{onName, true}, {offName, false}} {
		client, server := pod(t, consumer, from.Node, way.on), pod(t, provider, to.Node, way.on)
		address, err := view.Pod(server.Address)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path{way.name, beside(t, client, "traffic"), beside(t, server, "traffic"), address, 5301})
	}
	return paths
}

const service = `
apiVersion: v1
kind: Service
metadata: {name: bench, namespace: liqo}
spec:
  type: NodePort
  selector: {` + labels.Gateway + `: ` + labels.GatewayActive + `}
  ports: [{name: udp, port: 51872, protocol: UDP}]
`

func gateway(t *testing.T, c *env.Cluster) env.Pod {
	t.Helper()
	all, err := c.Pods("liqo", map[string]string{labels.Gateway: labels.GatewayActive})
	if err != nil || len(all) != 1 {
		t.Fatalf("%s has %d gateways, want one: %v", c.Name, len(all), err)
	}
	return all[0]
}

// pod returns a server pod on the node, or, if on is false, on another node.
func pod(t *testing.T, c *env.Cluster, node *env.Node, on bool) env.Pod {
	t.Helper()
	all, err := traffic.Servers(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range all {
		if (found.Node == node) == on {
			return found
		}
	}
	t.Fatalf("%s has no server pod with (on node %s) == %t", c.Name, node.Name, on)
	return env.Pod{}
}

// beside returns the network namespace of a pod, in the control groups of its program. All that is compared gets processor time like a pod.
func beside(t *testing.T, p env.Pod, program string) netns.Place {
	t.Helper()
	found, err := p.Beside(program)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// serve starts iperf3 and the playground's demo server at the end of the path, unless another path has done it.
func (p path) serve(t *testing.T, clusters *env.Env) {
	t.Helper()
	for _, argv := range [][]string{
		{"iperf3", "--server", "--port", strconv.Itoa(p.port)},
		{filepath.Join(clusters.Tools, "demo"), "serve", "--listen", ":" + strconv.Itoa(p.port+1)},
	} {
		cmd := p.server.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // a second server on the same port has exited
			_ = cmd.Wait()
		})
	}
	env.Eventually(t, 10*time.Second, "the server of "+p.name+" answers", func() (string, bool) {
		result := p.client.Try(filepath.Join(clusters.Tools, "demo"), "probe", "http", p.url(), "--count", "1")
		return result.String(), result.Code == 0
	})
}

func (p path) url() string { return fmt.Sprintf("http://%s:%d/api/info", p.address, p.port+1) }

// measure measures each column once.
func (p path) measure(t *testing.T, clusters *env.Env) map[string]float64 {
	t.Helper()
	result := map[string]float64{}
	result[tcp1] = p.iperf(t)
	result[tcp4] = p.iperf(t, "--parallel", "4")
	result[udp] = p.iperf(t, "--udp", "--bandwidth", "1G", "--length", "1300")
	load := func(workers string) (r struct {
		Failed            int
		RequestsPerSecond float64
		LatencyMs         struct{ P50, P99 float64 }
	},
	) {
		output := p.client.Run(t, filepath.Join(clusters.Tools, "demo"), "load", "--url", p.url(), "--rate", "0", "--keep-alive",
			"--concurrency", workers, "--duration", fmt.Sprintf("%ds", *seconds), "-o", "json")
		if err := json.Unmarshal([]byte(output), &r); err != nil || r.Failed > 0 {
			t.Errorf("%s: load: %v: %s", p.name, err, output)
		}
		return r
	}
	result[rate] = load("16").RequestsPerSecond
	one := load("1")
	result[p50], result[p99] = one.LatencyMs.P50*1000, one.LatencyMs.P99*1000
	streams := p.client.Command("iperf3", p.iperfArgs("--parallel", "4", "--time", strconv.Itoa(*seconds+1))...)
	if err := streams.Start(); err != nil {
		t.Fatal(err)
	}
	busy := load("1")
	if err := streams.Wait(); err != nil {
		t.Errorf("%s: iperf3: %v", p.name, err)
	}
	result[busy50], result[busy99] = busy.LatencyMs.P50*1000, busy.LatencyMs.P99*1000
	return result
}

func (p path) iperfArgs(options ...string) []string {
	return append([]string{"--client", p.address.String(), "--port", strconv.Itoa(p.port), "--time", strconv.Itoa(*seconds), "--json"}, options...)
}

// iperf returns the received throughput in Gbit/s.
func (p path) iperf(t *testing.T, options ...string) float64 {
	t.Helper()
	type sum struct {
		BitsPerSecond float64 `json:"bits_per_second"`
		Lost          float64 `json:"lost_percent"`
	}
	type report struct {
		Error string
		End   struct {
			Received sum `json:"sum_received"`
			Sum      sum `json:"sum"`
		}
	}
	var r report
	// The server runs one test at a time, and over a slow link the end of the last one takes a while to reach it.
	env.Eventually(t, time.Minute, p.name+": the server of iperf3 is free", func() (string, bool) {
		r = report{}
		output := p.client.Try("iperf3", p.iperfArgs(options...)...).Out
		if err := json.Unmarshal([]byte(output), &r); err != nil {
			r.Error = fmt.Sprintf("%v: %.500s", err, output)
		}
		return r.Error, !strings.Contains(r.Error, "server is busy")
	})
	if r.Error != "" {
		t.Errorf("%s: iperf3 %v: %s", p.name, options, r.Error)
	}
	if len(options) > 0 && options[0] == "--udp" {
		return r.End.Sum.BitsPerSecond * (1 - r.End.Sum.Lost/100) / 1e9
	}
	return r.End.Received.BitsPerSecond / 1e9
}
