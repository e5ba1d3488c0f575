// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clusterChecks are what every cluster with real nodes must do, in both modes of kube-proxy.
var clusterChecks = []check{
	{"deployment_of_three", deploymentOfThree},
	{"seccomp_and_limits", seccompAndLimits},
	{"pod_to_pod", podToPod},
	{"cluster_ip", clusterIP},
	{"dns", dnsNames},
	{"dns_unknown", dnsUnknown},
	{"logs", podLogs},
	{"exec", podExec},
	{"port_forward", portForward},
	{"node_port", nodePort},
	{"service_account", serviceAccount},
	{"vxlan_daemonset", vxlanDaemonSet},
	{"tun_device", tunDevice},
	{"rolling_update", rollingUpdate},
	{"volume", volume},
	{"pod_deletion", podDeletion},
}

const (
	demoImage  = "--image=playground.local/demo:1"
	toolsImage = "--image=playground.local/tools:1"
)

// run starts a single pod, not restarted; extra are flags and, after --, arguments.
func (r namespace) run(t testing.TB, name, image string, extra ...string) {
	t.Helper()
	r.kubectl(t, append([]string{"run", name, image, "--image-pull-policy=Never", "--restart=Never", "--labels=e2e=yes,app=" + name}, extra...)...)
}

func deploymentOfThree(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	nodes := map[string]bool{}
	for _, p := range f.web {
		nodes[p.node] = true
	}
	if len(f.web) != 3 || len(nodes) != len(c.nodes()) {
		t.Errorf("want three running pods spread over %d nodes, have %v", len(c.nodes()), f.web)
	}
}

func seccompAndLimits(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	r.apply(t, "limited.yaml", nil)
	r.ready(t, "limited")
	if mode := r.exec(t, "limited", "grep", "^Seccomp:", "/proc/1/status"); !strings.HasSuffix(mode, "2") {
		t.Errorf("the pod asks for the profile RuntimeDefault; want filter mode 2, have %q", mode)
	}
	// The container sees its own group at the root of each hierarchy, of either version.
	for _, limit := range []struct{ files, want string }{
		{"memory/memory.limit_in_bytes memory.max", "67108864"},
		{"cpu/cpu.cfs_quota_us cpu.max", "20000"},
	} {
		have := r.exec(t, "limited", "sh", "-c", "cd /sys/fs/cgroup; cat "+limit.files+" 2>/dev/null || true")
		if !slices.Contains(strings.Fields(have), limit.want) {
			t.Errorf("cgroup files %s of the container: want %s, have %q", limit.files, limit.want, have)
		}
	}
}

func podToPod(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	pairs := map[bool]int{}
	for node, tool := range f.tools {
		for _, p := range f.web {
			a := decode(t, f.curl(t, tool, "http://"+p.ip+":8080/api/info"))
			if a.Pod != p.name || a.Cluster != c.Name {
				t.Errorf("%s on %s asked %v, and got an answer of %+v", tool, node, p, a)
			}
			pairs[node == p.node]++
		}
	}
	if pairs[true] == 0 || pairs[false] == 0 {
		t.Errorf("want pairs on the same node and across nodes, tried %v", pairs)
	}
}

func clusterIP(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	report := f.load(t, "http://"+f.service+"/api/info", "10s", 20)
	if report.OK != report.Requests || len(report.Pods) < 2 {
		t.Errorf("want all requests to the ClusterIP answered, by more than one pod: %+v", report)
	}
}

// loadReport is the part of `demo load -o json` that is used here.
type loadReport struct {
	Requests, OK, Failed int
	Errors, Pods         map[string]int
}

// load makes some requests from a pod of the web service, a new connection each.
func (f fixture) load(t testing.TB, url, timeout string, requests int) loadReport {
	t.Helper()
	const rate = 20
	duration := time.Duration(requests) * time.Second / rate
	res := f.try("exec", f.web[0].name, "--", "demo", "load", "--url="+url, "--rate="+strconv.Itoa(rate),
		"--duration="+duration.String(), "--timeout="+timeout, "-o=json")
	var report loadReport
	if err := json.Unmarshal([]byte(res.out), &report); err != nil || report.Requests == 0 {
		t.Fatalf("no report of a load: %v: %s", err, res)
	}
	return report
}

func dnsNames(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	for _, name := range []string{"web." + f.ns + ".svc.cluster.local", "web." + f.ns, "web"} {
		if addresses := f.probe(t, f.web[0].name, "dns", name).Tries[0].Detail; addresses != f.service {
			t.Errorf("name %s: want %s, have %q", name, f.service, addresses)
		}
		if a := decode(t, f.curl(t, f.tool(), "http://"+name+"/api/info")); a.Cluster != c.Name { // the C library's resolver
			t.Errorf("http://%s was answered by %+v", name, a)
		}
	}
}

type probeTry struct {
	OK            bool
	RTTMs         float64
	Detail, Error string
}

// probeReport is the part of `demo probe -o json` that is used here.
type probeReport struct {
	Tries   []probeTry
	Summary struct {
		Sent, Answered      int
		MinMs, AvgMs, MaxMs float64
	}
}

// probe runs the probe client of the demo image in a pod; what it finds is for the caller to judge.
func (f fixture) probe(t testing.TB, pod, kind, target string, flags ...string) probeReport {
	t.Helper()
	argv := append([]string{"exec", pod, "--", "demo", "probe", kind, target, "--count=1", "--timeout=5s", "-o=json"}, flags...)
	res := f.try(argv...)
	var report probeReport
	if err := json.Unmarshal([]byte(res.out), &report); err != nil || len(report.Tries) == 0 {
		t.Fatalf("no report of a probe: %v: %s", err, res)
	}
	return report
}

func dnsUnknown(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	// The answer depends on whether the machine has a name server. Neither waits for one that does not answer: the error is
	// no timeout, and the fastest of three lookups, which a busy machine hardly slows down, takes no retry of the resolver.
	tries := f.probe(t, f.web[0].name, "dns", "unknown.playground.invalid", "--count=3").Tries
	slices.SortFunc(tries, func(a, b probeTry) int { return cmp.Compare(a.RTTMs, b.RTTMs) })
	wrong := func(try probeTry) bool {
		return try.OK || strings.Contains(try.Error, "timeout") || strings.Contains(try.Error, "deadline")
	}
	if len(tries) != 3 || tries[0].RTTMs > 2000 || slices.ContainsFunc(tries, wrong) {
		t.Errorf("an unknown external name must be refused, without a timeout: %+v", tries)
	}
	measure(c.Name+" unknown external name", "%.1f ms (median of 3)", tries[len(tries)/2].RTTMs)
}

func podLogs(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	for node, tool := range f.tools {
		if have, want := f.kubectl(t, "logs", tool), "tools on "+node; have != want {
			t.Errorf("log of %s: want %q, have %q", tool, want, have)
		}
	}
}

func podExec(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	res := f.startKubectl("spoken", "-n", f.ns, "exec", "-i", f.tool(), "--", "sh", "-c", "cat; echo aside >&2; exit 7").wait()
	if res.code != 7 || res.out != "spoken" || !strings.Contains(res.err, "aside") {
		t.Errorf("want input, output, errors and the exit code 7 to pass: %s", res)
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

func portForward(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	forward := converse(t, c.argv("-n", f.ns, "port-forward", "service/web", ":80")...)
	line, found := forward.waitForLine("Forwarding from 127.0.0.1", 30*time.Second)
	if !found {
		t.Fatalf("kubectl port-forward does not forward: %s", forward.err)
	}
	address := forwarding.FindStringSubmatch(line)[1]
	if a := ask(t, "http://"+address+"/api/info"); a.Cluster != c.Name {
		t.Errorf("the forwarded port was answered by %+v", a)
	}
}

// visitor is an HTTP client on the host that uses each connection once.
var visitor = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ask asks a demo pod from the host.
func ask(t testing.TB, url string) answer {
	t.Helper()
	body, err := visit(url)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, body)
}

func visit(url string) (string, error) {
	response, err := visitor.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %.200s", url, response.Status, body)
	}
	return string(body), err
}

func nodePort(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	for node, address := range c.nodes() {
		if a := ask(t, "http://"+address+":"+f.nodePort+"/api/info"); a.Cluster != c.Name {
			t.Errorf("the port of node %s was answered by %+v", node, a)
		}
	}
}

func serviceAccount(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	const script = `cd /var/run/secrets/kubernetes.io/serviceaccount
for what in pods secrets; do
  curl --silent --show-error --max-time 10 --cacert ca.crt -H "Authorization: Bearer $(cat token)" -o /dev/null -w "%{http_code} " \
    https://kubernetes.default.svc/api/v1/namespaces/$(cat namespace)/$what
done`
	if codes := f.exec(t, f.tool(), "sh", "-c", script); codes != "200 403" {
		t.Errorf("want pods allowed (200) and secrets forbidden (403), have %q", codes)
	}
}

func vxlanDaemonSet(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	r.apply(t, "privileged.yaml", map[string]any{"HostNetwork": true})
	r.rollout(t, "daemonset/privileged")
	pods := r.pods(t, "app=privileged") // of the host network, so their addresses are the nodes'
	if len(pods) != 2 {
		t.Fatalf("want a pod on each of two nodes, have %v", pods)
	}
	for i, p := range pods {
		peer := pods[1-i]
		script := fmt.Sprintf(`set -e
ip link add e2e-vxlan type vxlan id 4242 local %[1]s dstport 4790 nolearning
bridge fdb append 00:00:00:00:00:00 dev e2e-vxlan dst %[2]s
ip address add 192.168.77.%[3]d/24 dev e2e-vxlan
ip link set e2e-vxlan up`, p.ip, peer.ip, i+1)
		t.Cleanup(func() { r.try("exec", p.name, "--", "ip", "link", "delete", "e2e-vxlan") })
		r.exec(t, p.name, "sh", "-c", script)
	}
	for i, p := range pods {
		r.exec(t, p.name, "ping", "-c", "3", "-W", "2", "-I", "e2e-vxlan", fmt.Sprintf("192.168.77.%d", 2-i))
	}
}

func tunDevice(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	r.apply(t, "privileged.yaml", map[string]any{"HostNetwork": false})
	r.rollout(t, "daemonset/privileged")
	for _, p := range r.pods(t, "app=privileged") {
		have := r.exec(
			t, p.name, "sh", "-c",
			"ip tuntap add dev tun9 mode tun && ip address add 192.168.78.1/30 dev tun9 && ip link set tun9 up && ip -oneline -4 address show tun9",
		)
		if !strings.Contains(have, "192.168.78.1/30") {
			t.Errorf("no TUN device on %s: %s", p.node, have)
		}
	}
}

// rollingUpdate allows no failed request, without any retry: the pods serve for five more seconds
// after SIGTERM, and kube-proxy needs one second to stop sending to them.
func rollingUpdate(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	r.apply(t, "rolling.yaml", nil)
	r.rollout(t, "deployment/rolling")
	old := r.pods(t, "app=rolling")
	r.run(t, "load", demoImage, "--", "load", "--url=http://rolling/api/info", "--rate=50", "--duration=10m", "-o=json")
	r.ready(t, "load")
	report := r.startKubectl("", "-n", r.ns, "logs", "--follow", "load")

	began := time.Now()
	r.kubectl(t, "set", "env", "deployment/rolling", "GENERATION=2")
	r.rollout(t, "deployment/rolling")
	eventually(t, 60*time.Second, "old pods are gone", func() (string, bool) {
		left := r.try("get", "pods", "-o", "name").out
		return left, !slices.ContainsFunc(old, func(p webPod) bool { return strings.Contains(left, p.name) })
	})
	measure(c.Name+" rolling update of 3", "%.1f s", time.Since(began).Seconds())

	r.kubectl(t, "delete", "pod", "load") // it reports on SIGTERM
	res := report.wait()
	var seen loadReport
	text := res.out[max(0, strings.IndexByte(res.out, '{')) : strings.LastIndexByte(res.out, '}')+1] // complaints are beside it
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		t.Fatalf("no report of the load: %v: %s", err, res)
	}
	if seen.Failed > 0 || seen.Requests < 50 || len(seen.Pods) < 4 {
		t.Errorf("want no failed request, and answers of old and new pods: %+v", seen)
	}
}

func volume(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	if class := c.kubectl(t, "get", "storageclass", "standard", "-o",
		`jsonpath={.volumeBindingMode} {.metadata.annotations.storageclass\.kubernetes\.io/is-default-class}`); class != "WaitForFirstConsumer true" {
		t.Errorf("StorageClass standard: want WaitForFirstConsumer and the default, have %q", class)
	}
	r.apply(t, "volume.yaml", map[string]any{"Pod": "writer", "Script": "echo kept > /data/file; sleep infinity"})
	r.ready(t, "writer")
	node := r.get(t, "pod/writer", "{.spec.nodeName}")
	pv := r.get(t, "persistentvolumeclaim/data", "{.spec.volumeName}")
	directory := c.kubectl(t, "get", "persistentvolume", pv, "-o", "jsonpath={.spec.hostPath.path}")
	r.kubectl(t, "delete", "pod/writer", "--grace-period=1")

	r.apply(t, "volume.yaml", map[string]any{"Pod": "reader", "Script": "sleep infinity"})
	r.ready(t, "reader")
	if have := r.exec(t, "reader", "cat", "/data/file"); have != "kept" {
		t.Errorf("the second pod reads %q, the first wrote kept", have)
	}
	if have := c.node(t, node, "cat", directory+"/file"); have != "kept" {
		t.Errorf("the volume's directory %s on %s holds %q", directory, node, have)
	}
	r.kubectl(t, "delete", "pod/reader", "--grace-period=1")
	r.kubectl(t, "delete", "persistentvolumeclaim/data")
	c.kubectl(t, "wait", "--for=delete", "persistentvolume/"+pv, "--timeout=60s")
	eventually(t, 60*time.Second, "the deleted volume's directory is gone", func() (string, bool) {
		left := c.node(t, node, "ls", "/var/local-path")
		return left, !strings.Contains(left, pv)
	})
}

func podDeletion(t *testing.T, c cluster) {
	r := c.newNamespace(t)
	r.run(t, "mortal", demoImage)
	r.ready(t, "mortal")
	node, ip, uid := r.get(t, "pod/mortal", "{.spec.nodeName}"), r.get(t, "pod/mortal", "{.status.podIP}"), r.get(t, "pod/mortal", "{.metadata.uid}")
	observe := func(script string) string {
		script = strings.NewReplacer("UID", uid, "ADDRESS", ip).Replace(script)
		return strings.Join(strings.Fields(c.node(t, node, "sh", "-c", script)), " ")
	}
	parts := []struct {
		what, script string
		atLeast      int
		within       time.Duration
	}{
		{
			"processes",
			"ctr -n k8s.io tasks ls -q | grep -F \"$(ctr -n k8s.io containers ls -q 'labels.\"io.kubernetes.pod.uid\"==UID' | grep . || echo none)\" || true",
			2, 60 * time.Second,
		},
		{"volumes", "ls -d /var/lib/kubelet/pods/UID 2>/dev/null || true", 1, 60 * time.Second},
		{"cgroups", "find /sys/fs/cgroup -type d -name '*UID*'", 1, 60 * time.Second},
		{"address", "cat /run/cni-ipam-state/playground/ADDRESS 2>/dev/null || true; ip route show | grep 'ADDRESS ' || true", 2, 60 * time.Second},
		// The kubelet removes what is dead once a minute.
		{"containers", "ctr -n k8s.io containers ls -q 'labels.\"io.kubernetes.pod.uid\"==UID'", 2, 180 * time.Second},
		{"logs", "ls -d /var/log/pods/*UID 2>/dev/null || true", 1, 180 * time.Second},
	}
	for _, part := range parts {
		if have := observe(part.script); len(strings.Fields(have)) < part.atLeast {
			t.Errorf("%s of a running pod: want at least %d, found %q, so their absence later would prove nothing", part.what, part.atLeast, have)
		}
	}
	r.kubectl(t, "delete", "pod/mortal")
	for _, part := range parts {
		eventually(t, part.within, part.what+" of a deleted pod are gone", func() (string, bool) {
			left := observe(part.script)
			return left, left == ""
		})
	}
}
