// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// nodePower stops a worker abruptly and starts it again. The limits only guard against hanging; the times are measured.
func nodePower(t *testing.T, c cluster) {
	worker := c.Name + "-worker"
	r := c.newNamespace(t)
	r.apply(t, "keeper.yaml", nil)
	r.rollout(t, "statefulset/keeper")
	if node := r.get(t, "pod/keeper-0", "{.spec.nodeName}"); node != worker {
		t.Fatalf("the pod is on %s, not on %s", node, worker)
	}
	r.exec(t, "keeper-0", "sh", "-c", "echo kept > /data/file; sync")
	fixture := fixtures[c.Name].namespace
	here := "--field-selector=spec.nodeName=" + worker

	began := time.Now()
	change(t, "node", "stop", c.Name, worker)
	if s, ok := readStatus(t); ok || s.machineUp(c.Name, worker) {
		t.Errorf("status must show the stopped node and end with exit code 3: ok %t, %+v", ok, s)
	}
	c.kubectl(t, "wait", "node/"+worker, "--for=condition=Ready=Unknown", "--timeout=120s")
	measure("node stop to NotReady", "%.1f s", time.Since(began).Seconds())
	r.kubectl(t, "wait", "pod/keeper-0", "--for=condition=Ready=False", "--timeout=60s")
	fixture.kubectl(t, "wait", "pod", here, "--for=condition=Ready=False", "--timeout=60s")
	refuse(t, []string{worker, "down"}, "exec", c.Name, worker, "--", "true")

	began = time.Now()
	change(t, "node", "start", c.Name, worker)
	c.kubectl(t, "wait", "node/"+worker, "--for=condition=Ready", "--timeout=120s")
	measure("node start to Ready", "%.1f s", time.Since(began).Seconds())
	r.kubectl(t, "wait", "pod/keeper-0", "--for=condition=Ready", "--timeout=120s")
	fixture.kubectl(t, "wait", "pod", here, "--for=condition=Ready", "--timeout=120s")
	measure("node start to all its pods Ready", "%.1f s", time.Since(began).Seconds())
	if have := r.exec(t, "keeper-0", "cat", "/data/file"); have != "kept" {
		t.Errorf("the volume holds %q after the node came back", have)
	}
	phases := strings.Fields(fixture.kubectl(t, "get", "pods", here, "-o", "jsonpath={.items[*].status.phase}"))
	if slices.ContainsFunc(phases, func(phase string) bool { return phase != "Running" }) {
		t.Errorf("pods of the node that came back: %s", phases)
	}
}

func (s status) machineUp(clusterName, machine string) bool {
	for _, c := range s.Clusters {
		for _, m := range c.Machines {
			if c.Name == clusterName && m.Name == machine {
				return m.Up
			}
		}
	}
	return false
}

// componentKill kills every component of a cluster, one after the other. Each is restarted and
// the cluster works. A pod with one long connection keeps running: its container ends with the
// connection.
func componentKill(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	r := c.newNamespace(t)
	r.apply(t, "balanced.yaml", map[string]any{"Service": "balanced", "Policy": "Cluster", "Address": ""})
	r.run(t, "connected", toolsImage, "--", "curl", "--silent", "--no-buffer", "--limit-rate", "20k", "--output", "/dev/null",
		"http://web."+f.ns+"/api/bytes?n=1000000000")
	r.ready(t, "connected")
	r.rollout(t, "deployment/balanced")
	const identity = "{.status.phase} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].containerID}"
	before := r.get(t, "pod/connected", identity)

	worker := c.Name + "-worker/"
	for i, name := range []string{
		"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "cloud",
		worker + "kubelet", worker + "containerd", worker + "kube-proxy",
	} {
		s, _ := readStatus(t)
		old := s.component(t, c.Name, name)
		began := time.Now()
		change(t, "component", "kill", c.Name, name)
		eventually(t, 30*time.Second, name+" runs again after it was killed", func() (string, bool) {
			s, _ := readStatus(t)
			now := s.component(t, c.Name, name)
			return fmt.Sprintf("%+v, before: %+v", now, old), now.State == "running" && now.Starts == old.Starts+1 && now.Pid != old.Pid
		})
		r.works(t, name, i+2)
		measure(c.Name+" "+name+" killed, works again", "%.1f s", time.Since(began).Seconds())
		if now := r.get(t, "pod/connected", identity); now != before {
			t.Errorf("after %s was killed, a running pod is %q; before: %q", name, now, before)
		}
	}
}

// works starts one more pod behind a new Service, which needs every component:
// API server and etcd keep it, the controller manager makes pods, the scheduler assigns them,
// kubelet and containerd run them, kube-proxy knows the Service, cloud gives it an address.
func (r namespace) works(t *testing.T, killed string, replicas int) {
	t.Helper()
	eventually(t, 30*time.Second, "the API server is ready", func() (string, bool) {
		res := r.try("get", "--raw", "/readyz")
		return res.String(), res.out == "ok"
	})
	// Its storage of each kind reconnects to etcd on its own.
	eventually(t, 30*time.Second, "it takes a write", func() (string, bool) {
		res := r.try("scale", "deployment/balanced", fmt.Sprint("--replicas=", replicas))
		return res.String(), res.code == 0
	})
	r.rollout(t, "deployment/balanced")
	service := "after-" + strings.ReplaceAll(killed[strings.LastIndexByte(killed, '/')+1:], "_", "-")
	r.kubectl(t, "expose", "deployment/balanced", "--name="+service, "--type=LoadBalancer", "--port=80", "--target-port=8080")
	r.kubectl(t, "wait", "service/"+service, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=30s")
	address := r.get(t, "service/"+service, "{.status.loadBalancer.ingress[0].ip}")
	eventually(t, 60*time.Second, "the new Service answers on "+address, func() (string, bool) {
		body, err := visit("http://" + address + "/api/info")
		return fmt.Sprint(body, err), err == nil
	})
}

// componentStop stops the scheduler: it stays down, until it is started.
func componentStop(t *testing.T, c cluster) {
	const name = "kube-scheduler"
	r := c.newNamespace(t)
	change(t, "component", "stop", c.Name, name)
	t.Cleanup(func() {
		if t.Failed() {
			changing.Lock()
			defer changing.Unlock()
			pg("component", "start", c.Name, name)
		}
	})
	r.run(t, "waiting", demoImage)
	always(t, 5*time.Second, "the stopped scheduler is down and status shows it", func() (string, bool) {
		s, ok := readStatus(t)
		have := s.component(t, c.Name, name)
		node := r.get(t, "pod/waiting", "{.spec.nodeName}")
		return fmt.Sprintf("ok %t, %+v, pod on node %q", ok, have, node), !ok && have.State == "stopped" && have.Pid == 0 && node == ""
	})
	change(t, "component", "start", c.Name, name)
	r.ready(t, "waiting")
	s, _ := readStatus(t)
	if have := s.component(t, c.Name, name); have.State != "running" {
		t.Errorf("status after the start: %+v", have)
	}
	if log := must(t, "logs", c.Name, name, "--tail=3"); strings.Count(log, "\n") != 3 {
		t.Errorf("want the last three lines of the scheduler's log, have %q", log)
	}
	changing.Lock()
	defer changing.Unlock()
	refuse(t, []string{"nosuch", "kube-scheduler"}, "component", "kill", c.Name, "nosuch")
}

// firstNodeRestart restarts the node that lives beside the control plane, which goes on.
func firstNodeRestart(t *testing.T, c cluster) {
	f := fixtures[c.Name]
	server := func() component {
		s, _ := readStatus(t)
		return s.component(t, c.Name, "kube-apiserver")
	}
	before, restarts := server(), "{.items[*].status.containerStatuses[*].restartCount}"
	began := time.Now()
	change(t, "node", "restart", c.Name, c.Name+"-control-plane")
	eventually(t, 30*time.Second, "the API server is ready while the first node restarts", func() (string, bool) {
		res := c.try("get", "--raw", "/readyz")
		return res.String(), res.out == "ok"
	})
	// Its containers were killed with it: each starts a second time.
	eventually(t, 60*time.Second, "the pods run again", func() (string, bool) {
		have := f.try("get", "pods", "--selector=app=web", "-o", "jsonpath="+restarts)
		return have.String(), have.out == "1 1 1"
	})
	f.rollout(t, "deployment/web")
	f.rollout(t, "daemonset/tools")
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
	measure("first node restarted to its pods Ready", "%.1f s", time.Since(began).Seconds())
	// CoreDNS may still show the status it had before its node went down, and what is Ready
	// reaches kube-proxy's tables a moment later: only an answer proves that both are back.
	eventually(t, 30*time.Second, "a name resolves and its Service answers", func() (string, bool) {
		res := f.try("exec", f.tool(), "--", "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://web/api/info")
		return res.String(), res.code == 0
	})
	if now := server(); now != before {
		t.Errorf("the API server was %+v before its node restarted, and is %+v", before, now)
	}
}

// allWell: after the end of all faults, everything runs and the status shows no fault.
func allWell(t *testing.T) {
	eventually(t, 60*time.Second, "status is healthy", func() (string, bool) {
		s, ok := readStatus(t)
		return fmt.Sprintf("%+v", s), ok && len(s.Faults) == 0
	})
}
