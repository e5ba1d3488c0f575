// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// links are three clusters whose links are disturbed and measured, from pod to node.
type links struct {
	alpha, beta, gamma end
}

// end is a cluster as seen in these measurements.
type end struct {
	fixture
	node    string // its last one
	address string
}

func newLinks(t *testing.T, clusters ...cluster) links {
	var ends []end
	for _, c := range clusters {
		e := end{fixture: fixtures[c.Name]}
		for node := range c.nodes() {
			e.node = max(e.node, node)
		}
		e.address = c.nodes()[e.node]
		ends = append(ends, e)
	}
	t.Cleanup(func() { must(t, "fault", "clear") })
	return links{ends[0], ends[1], ends[2]}
}

// shown wants exactly these faults in the status, each as its non-zero values.
func shown(t *testing.T, want ...string) {
	t.Helper()
	s, _ := readStatus(t)
	var have []string
	for _, f := range s.Faults {
		text := strings.Fields(f.A + " " + f.B + " " + f.Delay + " " + f.Loss + " " + f.Bandwidth)
		if f.DropAB {
			text = append(text, "dropAB")
		}
		if f.DropBA {
			text = append(text, "dropBA")
		}
		for _, port := range f.AllowAB {
			text = append(text, "allowAB", port)
		}
		for _, port := range f.AllowBA {
			text = append(text, "allowBA", port)
		}
		have = append(have, strings.Join(text, " "))
	}
	if !slices.Equal(have, want) {
		t.Errorf("status shows the faults %q, want %q", have, want)
	}
}

// fastest returns the shortest time in ms of 50 new connections from a pod to a node port of another
// cluster: one round trip each. A busy machine makes a round trip longer, never shorter.
func (from end) fastest(t *testing.T, to end) float64 {
	t.Helper()
	report := from.probe(t, from.web[0].name, "tcp", to.address+":"+to.nodePort, "--count=50", "--interval=20ms")
	if report.Summary.Answered != report.Summary.Sent {
		t.Errorf("from %s to %s: %d of %d connections", from.Name, to.Name, report.Summary.Answered, report.Summary.Sent)
	}
	var times []float64
	for _, try := range report.Tries {
		times = append(times, try.RTTMs)
	}
	slices.Sort(times)
	measure("round trip "+from.Name+" to "+to.Name, "%.2f ms (median of %d)", times[len(times)/2], len(times))
	return times[0]
}

func (l links) delay(t *testing.T) {
	if before := l.alpha.fastest(t, l.beta); before >= 50 {
		t.Errorf("without a fault, a round trip takes at least %.2f ms", before)
	}
	must(t, "fault", "delay", "alpha", "beta", "50ms")
	defer must(t, "fault", "delay", "alpha", "beta", "0")
	shown(t, "alpha beta 50ms")
	for _, pair := range [][2]end{{l.alpha, l.beta}, {l.beta, l.alpha}} {
		// The delay of both directions, each once: a packet delayed twice would take 150 ms or more.
		if rtt := pair[0].fastest(t, pair[1]); rtt < 100 || rtt >= 150 {
			t.Errorf("from %s to %s the fastest round trip takes %.2f ms, want 100 to 150", pair[0].Name, pair[1].Name, rtt)
		}
	}
	if other := l.alpha.fastest(t, l.gamma); other >= 50 {
		t.Errorf("the link to gamma has no fault, but a round trip takes at least %.2f ms", other)
	}
}

var received = regexp.MustCompile(`(\d+) packets transmitted, (\d+) packets received`)

// ping sends packets to a node of another cluster, and counts on that node how many of them
// arrived, so that each direction is measured separately.
func (from end) ping(t *testing.T, to end, count int, interval string) (arrived, answered int) {
	t.Helper()
	before := to.echoes(t)
	res := from.try("exec", from.tool(), "--", "ping", "-q", "-c", strconv.Itoa(count), "-i", interval, "-W", "1", to.address)
	match := received.FindStringSubmatch(res.out) // its exit code is 1 if nothing was answered
	if match == nil || match[1] != strconv.Itoa(count) {
		t.Fatalf("ping counts nothing: %s", res)
	}
	answered, _ = strconv.Atoi(match[2])
	return to.echoes(t) - before, answered
}

// echoes is how many ICMP echo requests the node has seen.
func (e end) echoes(t *testing.T) int {
	t.Helper()
	var rows [][]string
	text := e.cluster.node(t, e.node, "cat", "/proc/net/snmp")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Icmp:") {
			rows = append(rows, strings.Fields(line))
		}
	}
	if len(rows) == 2 {
		if i := slices.Index(rows[0], "InEchos"); i > 0 && i < len(rows[1]) {
			n, err := strconv.Atoi(rows[1][i])
			if err == nil {
				return n
			}
		}
	}
	t.Fatalf("no counter InEchos on %s: %s", e.node, text)
	return 0
}

func (l links) loss(t *testing.T) {
	const sent = 2000
	must(t, "fault", "loss", "alpha", "beta", "5%")
	defer must(t, "fault", "loss", "alpha", "beta", "0")
	shown(t, "alpha beta 5%")
	arrived, answered := l.alpha.ping(t, l.beta, sent, "0.001")
	outbound := 100 * (1 - float64(arrived)/sent)
	inbound := 100 * (1 - float64(answered)/float64(max(1, arrived)))
	measure("loss 5 %", "%.2f %% outbound, %.2f %% inbound (%d packets)", outbound, inbound, sent)
	// Four standard deviations: with 2000 packets one is 0.5 %.
	for direction, percent := range map[string]float64{"alpha to beta": outbound, "beta to alpha": inbound} {
		if percent < 3 || percent > 7 {
			t.Errorf("%s: lost %.2f %%, want 3 to 7", direction, percent)
		}
	}
	if arrived, answered := l.alpha.ping(t, l.gamma, 200, "0.001"); arrived != 200 || answered != 200 {
		t.Errorf("the link to gamma has no fault, but of 200 packets %d arrived and %d were answered", arrived, answered)
	}
}

// throughput is in Mbit/s, from a pod to one of another cluster, or back.
func (from end) throughput(t *testing.T, to end, seconds string, back ...string) float64 {
	t.Helper()
	port := to.get(t, "service/meter", "{.spec.ports[0].nodePort}")
	argv := append([]string{"exec", from.tool(), "--", "iperf3", "--client", to.address, "--port", port, "--time", seconds, "--omit", "1", "--json"}, back...)
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
		Error string
	}
	res := from.try(argv...)
	if err := json.Unmarshal([]byte(res.out), &report); err != nil || report.Error != "" || report.End.Received.Rate == 0 {
		t.Fatalf("no measurement by iperf3 (%v): %s", err, res)
	}
	return report.End.Received.Rate / 1e6
}

func (l links) bandwidth(t *testing.T) {
	must(t, "fault", "bandwidth", "alpha", "beta", "50mbit")
	defer must(t, "fault", "bandwidth", "alpha", "beta", "0")
	shown(t, "alpha beta 50mbit")
	for direction, flags := range map[string][]string{"alpha to beta": nil, "beta to alpha": {"--reverse"}} {
		// More than the limit never arrives. How much less does depends on the machine, which runs both ends and the link: the
		// lower bound only detects a limit that is far too small.
		rate := l.alpha.throughput(t, l.beta, "3", flags...)
		measure("bandwidth 50 Mbit/s, "+direction, "%.1f Mbit/s", rate)
		if rate < 5 || rate > 57.5 {
			t.Errorf("%s: %.1f Mbit/s, want 5 to 57.5", direction, rate)
		}
	}
}

// reaches reports whether new connections from a pod reach a node port of another cluster. On a machine that is busy for a second a
// connection may time out, so it tries three times; through a partition none ever succeeds.
func (from end) reaches(t *testing.T, to end) bool {
	t.Helper()
	answered := 0
	for range 3 {
		report := from.probe(t, from.web[0].name, "tcp", to.address+":"+to.nodePort, "--count=2", "--timeout=1s", "--interval=100ms")
		if report.Summary.Answered == 2 {
			return true
		}
		answered += report.Summary.Answered
	}
	if answered > 0 {
		t.Errorf("from %s to %s: neither all nor nothing: %d of 6 connections", from.Name, to.Name, answered)
	}
	return answered > 0
}

// wire is a connection from a pod to a web pod of another cluster that stays open.
type wire struct {
	conversation
	want string
}

func (from end) wire(t *testing.T, to end) wire {
	t.Helper()
	w := wire{converse(t, from.argv("-n", from.ns, "exec", "-i", from.tool(), "--", "nc", to.address, to.nodePort)...), `"cluster": "` + to.Name + `"`}
	w.ask(t)
	if _, answered := w.waitForLine(w.want, 30*time.Second); !answered {
		t.Fatalf("no answer on a connection from %s to %s: %s", from.Name, to.Name, w.err)
	}
	return w
}

func (w wire) ask(t *testing.T) {
	t.Helper()
	w.write(t, "GET /api/info HTTP/1.1\r\nHost: e2e\r\n\r\n")
}

func (l links) partition(t *testing.T) {
	cut, whole := l.alpha.wire(t, l.beta), l.beta.wire(t, l.gamma)
	must(t, "fault", "partition", "alpha", "beta")
	defer must(t, "fault", "heal", "alpha", "beta")
	shown(t, "alpha beta dropAB dropBA")
	cut.ask(t)
	whole.ask(t)
	for _, pair := range [][2]end{{l.alpha, l.beta}, {l.beta, l.alpha}} {
		if pair[0].reaches(t, pair[1]) {
			t.Errorf("%s reaches %s through the partition", pair[0].Name, pair[1].Name)
		}
		if arrived, answered := pair[0].ping(t, pair[1], 20, "0.01"); arrived+answered != 0 {
			t.Errorf("%d packets from %s arrive at %s through the partition", arrived, pair[0].Name, pair[1].Name)
		}
	}
	for _, pair := range [][2]end{{l.alpha, l.gamma}, {l.gamma, l.alpha}, {l.beta, l.gamma}, {l.gamma, l.beta}} {
		if !pair[0].reaches(t, pair[1]) {
			t.Errorf("%s does not reach %s, which are not parted", pair[0].Name, pair[1].Name)
		}
	}
	if _, answered := cut.waitForLine(cut.want, time.Second); answered {
		t.Error("an established connection from alpha to beta goes on through the partition")
	}
	if _, answered := whole.waitForLine(whole.want, 30*time.Second); !answered {
		t.Error("an established connection from beta to gamma does not go on")
	}
	must(t, "fault", "heal", "alpha", "beta")
	shown(t)
	began := time.Now()
	if _, answered := cut.waitForLine(cut.want, 120*time.Second); !answered {
		t.Errorf("the established connection from alpha to beta does not go on after the partition: %s", cut.err)
	}
	measure("heal to answer on an old connection", "%.1f s (TCP's own back-off)", time.Since(began).Seconds())
	for _, pair := range [][2]end{{l.alpha, l.beta}, {l.beta, l.alpha}} {
		if !pair[0].reaches(t, pair[1]) {
			t.Errorf("%s does not reach %s after the partition", pair[0].Name, pair[1].Name)
		}
	}
}

func (l links) oneWay(t *testing.T) {
	must(t, "fault", "partition", "alpha", "beta", "--one-way")
	defer must(t, "fault", "heal", "alpha", "beta")
	shown(t, "alpha beta dropAB")
	if arrived, answered := l.alpha.ping(t, l.beta, 20, "0.01"); arrived != 0 || answered != 0 {
		t.Errorf("alpha to beta is cut, but %d packets arrived and %d answers", arrived, answered)
	}
	if arrived, answered := l.beta.ping(t, l.alpha, 20, "0.01"); arrived != 20 || answered != 0 {
		t.Errorf("beta to alpha is whole and its answers are cut: of 20 packets %d arrived, %d were answered", arrived, answered)
	}
}

// allow closes the link from alpha to beta but for beta's node port: a connection to it goes on, one to alpha's node port is cut,
// and the counters agree that nothing else passed.
func (l links) allow(t *testing.T) {
	open, cut := l.alpha.wire(t, l.beta), l.beta.wire(t, l.alpha)
	must(t, "fault", "allow", "alpha", "beta", "tcp/"+l.beta.nodePort, "--one-way")
	defer must(t, "fault", "heal", "alpha", "beta")
	shown(t, "alpha beta allowAB tcp/"+l.beta.nodePort)
	open.ask(t)
	cut.ask(t)
	if _, answered := open.waitForLine(open.want, 30*time.Second); !answered {
		t.Errorf("an established connection to the open port does not go on: %s", open.err)
	}
	if _, answered := cut.waitForLine(cut.want, time.Second); answered {
		t.Error("an established connection to another port goes on")
	}
	if !l.alpha.reaches(t, l.beta) || l.beta.reaches(t, l.alpha) || !l.alpha.reaches(t, l.gamma) {
		t.Error("want new connections from alpha to beta and to gamma, and none from beta to alpha")
	}
	if arrived, answered := l.alpha.ping(t, l.beta, 20, "0.01"); arrived+answered != 0 {
		t.Errorf("%d pings arrive through the closed link", arrived)
	}
	var counters []struct {
		From, To, Verdict, What string
		Packets                 int
	}
	text := must(t, "fault", "counters", "alpha", "beta", "-o", "json")
	if err := json.Unmarshal([]byte(text), &counters); err != nil || len(counters) != 6 {
		t.Fatalf("want the port, anything else and closed in each direction (%v): %s", err, text)
	}
	for _, c := range counters {
		if (c.Packets > 0) != (c.What != "anything else") {
			t.Errorf("unexpected count: %+v", c)
		}
	}
	must(t, "fault", "heal", "alpha", "beta")
	shown(t)
	if !l.beta.reaches(t, l.alpha) {
		t.Error("after heal, beta does not reach alpha")
	}
}

func (l links) host(t *testing.T) {
	must(t, "fault", "partition", "gamma", "host")
	defer must(t, "fault", "heal", "gamma", "host")
	shown(t, "gamma host dropAB dropBA")
	if body, err := visit("http://" + l.gamma.address + ":" + l.gamma.nodePort + "/api/info"); err == nil {
		t.Errorf("the host reaches gamma through the partition: %s", body)
	}
	ask(t, "http://"+l.beta.address+":"+l.beta.nodePort+"/api/info")
	if !l.alpha.reaches(t, l.gamma) {
		t.Error("alpha does not reach gamma, although only the host is cut off")
	}
}

func (l links) refused(t *testing.T) {
	must(t, "fault", "delay", "alpha", "gamma", "3ms")
	for _, bad := range []struct{ args, word string }{
		{"partition alpha nosuch", "nosuch"},
		{"delay nosuch beta 5ms", "nosuch"},
		{"heal alpha nosuch", "nosuch"},
		{"delay alpha beta 50", "unit"},
		{"delay alpha beta 1h", "partition"},
		{"loss alpha beta 101%", "100%"},
		{"bandwidth alpha beta 5", "unit"},
		{"delay alpha alpha 5ms", "different"},
		{"partition alpha alpha", "alpha"},
		{"allow alpha nosuch tcp/443", "nosuch"},
		{"allow alpha beta 443", "protocol"},
		{"allow alpha alpha tcp/443", "alpha"},
		{"counters nosuch", "nosuch"},
		{"clear nosuch", "nosuch"},
	} {
		refuse(t, []string{bad.word}, append([]string{"fault"}, strings.Fields(bad.args)...)...)
	}
	shown(t, "alpha gamma 3ms")
}

// clear removes every fault of every link at once, and then packets pass as before.
func (l links) clear(t *testing.T) {
	for _, args := range []string{"delay alpha beta 20ms", "loss alpha beta 10%", "bandwidth alpha beta 1mbit", "partition beta gamma"} {
		must(t, append([]string{"fault"}, strings.Fields(args)...)...)
	}
	shown(t, "alpha beta 20ms 10% 1mbit", "alpha gamma 3ms", "beta gamma dropAB dropBA")
	must(t, "fault", "clear")
	shown(t)
	if rtt := l.alpha.fastest(t, l.beta); rtt >= 20 {
		t.Errorf("after clear, a round trip takes at least %.2f ms", rtt)
	}
	if arrived, answered := l.alpha.ping(t, l.beta, 200, "0.001"); arrived != 200 || answered != 200 {
		t.Errorf("after clear, of 200 packets %d arrived and %d were answered", arrived, answered)
	}
	rate := l.alpha.throughput(t, l.beta, "1")
	measure("throughput without a fault", "%.1f Mbit/s", rate)
	if rate < 2 { // the limit was 1
		t.Errorf("after clear, the throughput is %.1f Mbit/s", rate)
	}
	if !l.beta.reaches(t, l.gamma) {
		t.Error("after clear, beta does not reach gamma")
	}
}
