// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

// serviceChecks are what clusters offer beyond plain Kubernetes nodes: metrics, load
// balancer addresses, and an API server that reaches Services.
var serviceChecks = []check{
	{"metrics", metricsAreThere},
	{"load_balancer", loadBalancer},
	{"aggregated_api", aggregatedAPI},
	{"webhook", mutatingWebhook},
}

var (
	topNode = regexp.MustCompile(`^\S+\s+[1-9]\d*m\s+\d+%\s+[1-9]\d*Mi\s+\d+%$`)
	topPod  = regexp.MustCompile(`^web-\S+\s+\d+m\s+[1-9]\d*Mi$`)
)

func metricsAreThere(t *testing.T, c cluster) {
	for _, top := range []struct {
		args []string
		row  *regexp.Regexp
		want int
	}{
		{[]string{"top", "nodes", "--no-headers"}, topNode, len(c.nodes())},
		{[]string{"-n", fixtureNS, "top", "pods", "--selector=app=web", "--no-headers"}, topPod, 3},
	} {
		// A new pod has its first numbers after two scrapes of 15 s.
		eventually(t, 90*time.Second, "kubectl "+strings.Join(top.args, " ")+" gives numbers", func() (string, bool) {
			res := c.try(top.args...)
			rows := 0
			for line := range strings.Lines(res.out) {
				if top.row.MatchString(strings.TrimSpace(line)) {
					rows++
				}
			}
			return res.String(), rows == top.want
		})
	}
}

// balance applies a LoadBalancer Service and returns its address when the host gets an
// answer through it.
func (r namespace) balance(t testing.TB, service, policy, address string) string {
	t.Helper()
	r.apply(t, "balanced.yaml", map[string]any{"Service": service, "Policy": policy, "Address": address})
	r.rollout(t, "deployment/balanced")
	r.kubectl(t, "wait", "service/"+service, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=30s")
	given := r.get(t, "service/"+service, "{.status.loadBalancer.ingress[0].ip}")
	eventually(t, 60*time.Second, "the host is answered by "+given, func() (string, bool) {
		body, err := visit("http://" + given + "/api/info")
		if err != nil {
			return err.Error(), false
		}
		a := decode(t, body)
		return body, a.Cluster == r.Name && strings.HasPrefix(a.Pod, "balanced-")
	})
	return given
}

func loadBalancer(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	other := clusterNamed(t, "gamma") // a pod of another cluster, which has no route to our pods
	visitorFrom := func(address string) answer {
		f := fixtures[other.Name]
		return decode(t, f.curl(t, f.tool(), "http://"+address+"/api/info"))
	}
	first := r.balance(t, "first", "Cluster", "")
	nodeNet := netip.MustParsePrefix(c.NodeCIDR)
	if a, err := netip.ParseAddr(first); err != nil || !nodeNet.Contains(a) {
		t.Errorf("address %q is not in the node network %s", first, nodeNet)
	}
	if a := visitorFrom(first); a.Cluster != c.Name {
		t.Errorf("a pod of %s asked %s, and got an answer of %+v", other.Name, first, a)
	}

	second := r.balance(t, "second", "Local", "")
	if second == first {
		t.Errorf("two Services have the address %s", first)
	}
	hostAddress := addressTowards(t, second)
	if a := ask(t, "http://"+second+"/api/info"); client(a) != hostAddress {
		t.Errorf("externalTrafficPolicy Local: the pod sees %s as client, the host is %s", client(a), hostAddress)
	}
	if a := visitorFrom(second); client(a) != other.nodes()[other.Name+"-control-plane"] {
		t.Errorf("externalTrafficPolicy Local: the pod sees %s as client, the other pod's node is %v", client(a), other.nodes())
	}

	r.kubectl(t, "delete", "service", "first")
	eventually(t, 60*time.Second, "no node answers for the released address "+first, func() (string, bool) {
		connection, err := net.DialTimeout("tcp", first+":80", 500*time.Millisecond)
		if err != nil {
			return err.Error(), true
		}
		return "a connection", connection.Close() != nil
	})
	if again := r.balance(t, "third", "Cluster", first); again != first {
		t.Errorf("a Service asked for the released address %s and got %s", first, again)
	}
}

func client(a answer) string {
	host, _, _ := net.SplitHostPort(a.Client) // no address is shown as such
	return host
}

// addressTowards is the host's own address on the way to another one.
func addressTowards(t testing.TB, address string) string {
	t.Helper()
	connection, err := net.Dial("udp", address+":9") // sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return client(answer{Client: connection.LocalAddr().String()})
}

// secure starts a demo server and returns the authority of its certificate, which it
// prints, as manifests want it.
func (r namespace) secure(t testing.TB, command string) string {
	t.Helper()
	r.apply(t, "secured.yaml", map[string]any{"Command": command})
	r.rollout(t, "deployment/"+command)
	ca := r.kubectl(t, "logs", "deployment/"+command)
	if !strings.HasPrefix(ca, "-----BEGIN CERTIFICATE-----") {
		t.Fatalf("demo %s prints no certificate: %q", command, ca)
	}
	return base64.StdEncoding.EncodeToString([]byte(ca + "\n"))
}

func aggregatedAPI(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	ca := r.secure(t, "apiserver")
	t.Cleanup(func() { c.try("delete", "apiservice", "v1.demo.liqo.io", "--wait=false") })
	r.apply(t, "apiservice.yaml", map[string]any{"CA": ca})
	c.kubectl(t, "wait", "apiservice/v1.demo.liqo.io", "--for=condition=Available", "--timeout=60s")
	// The API server's proxy learns by another watch that it is available.
	eventually(t, 30*time.Second, "the aggregated API answers as this cluster", func() (string, bool) {
		res := c.try("get", "--raw", "/apis/demo.liqo.io/v1/greetings/hello")
		return res.String(), strings.Contains(strings.ReplaceAll(res.out, `": "`, `":"`), `"cluster":"`+c.Name+`"`)
	})
	eventually(t, 30*time.Second, "kubectl discovers the kind", func() (string, bool) {
		res := c.try("get", "greetings.demo.liqo.io", "-o", "name")
		return res.String(), strings.TrimSpace(res.out) == "greeting.demo.liqo.io/hello"
	})
}

func mutatingWebhook(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	ca := r.secure(t, "webhook")
	t.Cleanup(func() { c.try("delete", "mutatingwebhookconfiguration", r.ns, "--wait=false") })
	r.apply(t, "webhook.yaml", map[string]any{"CA": ca})
	const label = `{.metadata.labels.demo\.liqo\.io/admitted}`
	// The API server learns of a new webhook by a watch.
	eventually(t, 30*time.Second, "a new object carries the webhook's label", func() (string, bool) {
		r.try("delete", "configmap", "probe", "--ignore-not-found")
		if res := r.try("create", "configmap", "probe"); res.code != 0 {
			return res.String(), false // kube-proxy may not know its pod yet
		}
		have := r.get(t, "configmap/probe", label)
		return have, have == "yes"
	})
	r.run(t, "labelled", demoImage)
	if have := r.get(t, "pod/labelled", label); have != "yes" {
		t.Errorf("pod labelled has the webhook's label %q, want yes", have)
	}
}
