// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func badScenarioIsRefused(t *testing.T) {
	before := takeSnapshot()
	for _, bad := range []struct{ text, line, why string }{
		{"clusters:\n- name: one\n  nods: []\n", ":3: ", "nods"},
		{"clusters:\n- name: one\n  nodeCIDR: 10.210.1.0/24\n- name: two\n  nodeCIDR: 10.210.1.0/24\n", ":5: ", "10.210.1.0/24"},
	} {
		file := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(file, []byte(bad.text), 0o600); err != nil {
			t.Fatal(err)
		}
		refuse(t, []string{file + bad.line, bad.why}, "up", file)
	}
	refuse(t, []string{"nosuch", "quick-start"}, "up", "nosuch")
	before.same(t, "after refused scenarios")
}

// takenNetworkIsRefused takes a part of the playground's network for an interface of the
// host, as a virtual private network would.
func takenNetworkIsRefused(t *testing.T) {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "e2e-taken"}, PeerName: "e2e-taken-peer"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatalf("make a pair of interfaces: %v", err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(veth); err != nil {
			t.Errorf("remove the pair of interfaces: %v", err)
		}
	})
	for _, text := range []string{"10.210.77.1/24", "10.211.77.1/24"} {
		address, err := netlink.ParseAddr(text)
		if err == nil {
			err = netlink.AddrAdd(veth, address)
		}
		if err == nil {
			err = netlink.LinkSetUp(veth)
		}
		if err != nil {
			t.Fatalf("give %s to an interface: %v", text, err)
		}
	}
	before := takeSnapshot()
	refuse(t, []string{"10.210.77.0/24", "e2e-taken", "--network"}, "up", "control-plane-only")
	refuse(t, []string{"10.211.77.0/24", "e2e-taken", "--network"}, "up", "control-plane-only", "--network=10.211.0.0/16")
	refuse(t, []string{"--network"}, "up", "control-plane-only", "--network=nonsense")
	before.same(t, "after refused networks")
}

func nothingUpIsReported(t *testing.T) {
	before := takeSnapshot()
	for _, args := range [][]string{
		{"status"},
		{"kubeconfig"},
		{"add", "delta"},
		{"remove", "delta"},
		{"node", "stop", "alpha", "alpha-worker"},
		{"fault", "partition", "alpha", "beta"},
		{"component", "kill", "alpha", "etcd"},
		{"exec", "alpha", "alpha-worker", "--", "true"},
	} {
		refuse(t, []string{"no playground is up"}, args...)
	}
	must(t, "down")
	before.same(t, "after commands without a playground")
}

// halfway starts an `up` and returns when a certain program of it runs.
func halfway(t *testing.T, scenario, program string) *process {
	t.Helper()
	up := startPlayground("up", scenario)
	eventually(t, 60*time.Second, "the starting playground runs "+program, func() (string, bool) {
		var running []string
		for _, pid := range playgroundProcesses() {
			running = append(running, read(fmt.Sprintf("/proc/%d/comm", pid)))
		}
		return fmt.Sprint(running), slices.Contains(running, program)
	})
	return up
}

func interruptedUpLeavesNothing(t *testing.T) {
	before := takeSnapshot()
	up := halfway(t, "service", "containerd-shim") // when the first pods start
	refuse(t, []string{"another playground command is at work", "up service"}, "up", "quick-start")
	refuse(t, []string{"another playground command is at work"}, "down")
	asked := time.Now()
	if err := up.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("interrupt up: %v", err)
	}
	if r := up.wait(); r.code == 0 || strings.Contains(r.out, "is up after") {
		t.Errorf("the interrupted up reports that it is complete: %s", r)
	} else if time.Since(asked) > 30*time.Second { // a guard: an end takes a second or two
		t.Errorf("the interrupted up went on: %s", r)
	}
	before.same(t, "after an interrupted up")
}

func killedUpIsRepaired(t *testing.T) {
	up := halfway(t, "control-plane-only", "kube-apiserver")
	if err := up.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill up: %v", err)
	}
	up.wait()
	refuse(t, []string{"not completely up"}, "status")
	dir := filepath.Join(t.TempDir(), "kube")
	must(t, "up", "control-plane-only", "--audit", "--kubeconfig-dir="+dir)
	s, ok := readStatus(t)
	if !ok || len(s.Clusters) != 2 {
		t.Fatalf("after a killed up and another one, status is not healthy: %+v", s)
	}
	for _, c := range s.Clusters {
		if log := read(c.AuditLog); !strings.Contains(log, `"kind":"Event"`) {
			t.Errorf("no API audit log of %s in %q: %.200s", c.Name, c.AuditLog, log)
		}
		if want := filepath.Join(dir, c.Name+".yaml"); c.Kubeconfig != want || !strings.Contains(read(want), c.Server) {
			t.Errorf("kubeconfig of %s: want %s with %s, have %s: %.200s", c.Name, want, c.Server, c.Kubeconfig, read(want))
		}
	}
	must(t, "down")
	if left := names(dir); len(left) > 0 {
		t.Errorf("down leaves the directory of kubeconfigs, which it made: %v", left)
	}
}

// fingerprint holds what must not change when nothing is done: every process, and the
// version of every object that no controller renews.
func fingerprint(t testing.TB, clusters ...cluster) []string {
	t.Helper()
	s := waitHealthy(t)
	var all []string
	for _, c := range s.Clusters {
		if !slices.ContainsFunc(clusters, func(one cluster) bool { return one.Name == c.Name }) {
			continue
		}
		for _, m := range c.Machines {
			for _, p := range m.Components {
				all = append(all, fmt.Sprintf("%s %s %+v", c.Name, m.Name, p))
			}
		}
		for kinds, identity := range map[string]string{
			"namespaces,configmaps,services,serviceaccounts,storageclasses": "{.metadata.resourceVersion}",
			// Their status may change when a probe is late.
			"deployments,pods": "{.metadata.generation} {.status.containerStatuses[*].containerID}",
		} {
			objects := c.kubectl(t, "get", kinds, "-n", "kube-system", "-o",
				`jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid} `+identity+`{"\n"}{end}`)
			for line := range strings.Lines(objects) {
				if !strings.Contains(line, " e2e-") { // namespaces of checks are still going away
					all = append(all, c.Name+" "+strings.TrimSpace(line))
				}
			}
		}
	}
	return all
}

func upAgainChangesNothing(t *testing.T) {
	before, machine := fingerprint(t, current.Clusters...), takeSnapshot()
	if len(before) < 50 {
		t.Fatalf("the fingerprint of three clusters is too small to prove anything: %v", before)
	}
	res := pg("up", "three-overlap")
	if res.code != 0 || !strings.Contains(res.out, "nothing changed") {
		t.Errorf("want the report that nothing changed: %s", res)
	}
	measure("up again", "%.1f s", res.elapsed.Seconds())
	if changes := snapshot(before).difference(fingerprint(t, current.Clusters...)); len(changes) > 0 {
		t.Errorf("up again changed:\n%s", strings.Join(changes, "\n"))
	}
	// Processes and cgroups of pods come and go while checks' namespaces are deleted.
	volatile := regexp.MustCompile(`^[-+] (process|cgroup|mount) `)
	changes := slices.DeleteFunc(machine.difference(takeSnapshot()), volatile.MatchString)
	if len(changes) > 0 {
		t.Errorf("up again changed the machine:\n%s", strings.Join(changes, "\n"))
	}
}

func anotherScenarioIsRefused(t *testing.T) {
	before := fingerprint(t, current.Clusters...)
	refuse(t, []string{"three-overlap", "is up already", "playground down"}, "up", "quick-start")
	refuse(t, []string{"alpha"}, "add", "alpha")
	refuse(t, []string{"nosuch", "alpha"}, "remove", "nosuch")
	if changes := snapshot(before).difference(fingerprint(t, current.Clusters...)); len(changes) > 0 {
		t.Errorf("refused commands changed:\n%s", strings.Join(changes, "\n"))
	}
}

// addAndRemove adds a cluster with a real node and five kubemark nodes, uses it, and
// removes it; the others do not notice.
func addAndRemove(t *testing.T) {
	others := current.Clusters
	before, machine := fingerprint(t, others...), names(netnsDir+"/*", stateDir+"/*", stateDir+"/*/*", runtimeDir+"/*")

	adding := startPlayground("add", "delta", "--file=testdata/delta.yaml")
	eventually(t, 30*time.Second, "the new cluster's namespace", func() (string, bool) {
		have := names(netnsDir + "/*")
		return fmt.Sprint(have), slices.Contains(have, netnsDir+"/lpg-delta-control-plane")
	})
	refuse(t, []string{"another playground command is at work", "add delta"}, "fault", "delay", "alpha", "beta", "1ms")
	added := adding.wait()
	if added.code != 0 {
		t.Fatalf("%s", added)
	}
	measure("add a cluster with 5 kubemark nodes", "%.1f s", added.elapsed.Seconds())
	s := waitHealthy(t)
	if len(s.Clusters) != len(others)+1 {
		t.Fatalf("status after add is not healthy: %+v", s)
	}
	delta := s.Clusters[len(others)]
	t.Run("kubemark_nodes_and_pods", func(t *testing.T) { kubemarkPods(t, delta) })
	t.Run("reaches_the_others", func(t *testing.T) {
		must(t, "load", "tools", "delta")
		r := delta.newNamespace(t)
		r.run(t, "visitor", toolsImage, `--overrides={"spec":{"nodeName":"delta-control-plane"}}`)
		r.ready(t, "visitor")
		f := fixtures["alpha"]
		text := r.exec(t, "visitor", "curl", "--silent", "--max-time", "10", "http://"+f.nodes()["alpha-worker"]+":"+f.nodePort+"/api/info")
		if a := decode(t, text); a.Cluster != "alpha" {
			t.Errorf("the added cluster asked alpha, and got an answer of %+v", a)
		}
	})

	must(t, "fault", "delay", "delta", "alpha", "1ms") // which goes away with it, as do these
	must(t, "nat", "add", "delta")
	must(t, "proxy", "add", "delta", "--kind", "connect", "--listen", "3128")
	removed := pg("remove", "delta")
	if removed.code != 0 {
		t.Fatalf("%s", removed)
	}
	measure("remove a cluster", "%.1f s", removed.elapsed.Seconds())
	if s := waitHealthy(t); len(s.Clusters) != len(others) || len(s.Faults) != 0 {
		t.Errorf("status after remove is not healthy: %+v", s)
	}
	for _, line := range takeSnapshot() {
		if strings.Contains(line, "delta") {
			t.Errorf("left of the removed cluster: %s", line)
		}
	}
	// The link emulator was started for the fault and stays.
	rest := snapshot(machine).difference(names(netnsDir+"/*", stateDir+"/*", stateDir+"/*/*", runtimeDir+"/*"))
	rest = slices.DeleteFunc(rest, func(line string) bool { return strings.Contains(line, "netem") || strings.Contains(line, "/wan") })
	if len(rest) > 0 {
		t.Errorf("files and namespaces are not as before add and remove:\n%s", strings.Join(rest, "\n"))
	}
	if changes := snapshot(before).difference(fingerprint(t, others...)); len(changes) > 0 {
		t.Errorf("add and remove changed the other clusters:\n%s", strings.Join(changes, "\n"))
	}
}

// killEverything kills every process of the playground, as a crash of everything would.
func killEverything(t *testing.T) {
	t.Helper()
	eventually(t, 20*time.Second, "all processes of the playground are dead", func() (string, bool) {
		pids := playgroundProcesses()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
		}
		return fmt.Sprint(pids), len(pids) == 0
	})
}

func downAfterKill(t *testing.T) {
	if len(playgroundProcesses()) < 20 {
		t.Fatalf("too few processes of five nodes: %v", playgroundProcesses())
	}
	must(t, "fault", "delay", "alpha", "beta", "5ms") // with the link emulator at work
	killEverything(t)
	downIsClean(t, clean)
}

// downWithoutRecord also takes the record away, and with it the knowledge of the machine's
// settings before: these alone are not put back.
func downWithoutRecord(t *testing.T) {
	killEverything(t)
	if err := os.Remove(stateDir + "/state.json"); err != nil {
		t.Fatal(err)
	}
	for _, line := range clean {
		var name, value string
		if _, err := fmt.Sscanf(line, "setting %s = %s", &name, &value); err == nil {
			if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	downIsClean(t, clean)
}

// downIsClean takes the playground down and compares the machine with how it was.
func downIsClean(t *testing.T, before snapshot) {
	t.Helper()
	current = status{}
	r := pg("down")
	if r.code != 0 {
		t.Errorf("%s", r)
	}
	measure("down, "+t.Name(), "%.1f s", r.elapsed.Seconds())
	before.same(t, "after down")
}
