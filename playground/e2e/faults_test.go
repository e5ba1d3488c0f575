// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// nodePower pulls the plug of a worker and plugs it in again.
func nodePower(t *testing.T, c cluster) {
	worker := c.Name + "-worker"
	r := c.room(t)
	r.apply(t, "keeper.yaml", nil)
	r.rollout(t, "statefulset/keeper")
	if node := r.get(t, "pod/keeper-0", "{.spec.nodeName}"); node != worker {
		t.Fatalf("the pod is on %s, not on %s", node, worker)
	}
	r.exec(t, "keeper-0", "sh", "-c", "echo kept > /data/file; sync")
	furniture := furnished[c.Name].room
	here := "--field-selector=spec.nodeName=" + worker

	began := time.Now()
	change(t, "node", "stop", c.Name, worker)
	if s, ok := look(t); ok || s.machineUp(c.Name, worker) {
		t.Errorf("status must show the stopped node and end with exit code 3: ok %t, %+v", ok, s)
	}
	c.kubectl(t, "wait", "node/"+worker, "--for=condition=Ready=Unknown", "--timeout=40s")
	measure("node stop to NotReady", "%.1f s (limit 40)", time.Since(began).Seconds())
	r.kubectl(t, "wait", "pod/keeper-0", "--for=condition=Ready=False", "--timeout=20s")
	furniture.kubectl(t, "wait", "pod", here, "--for=condition=Ready=False", "--timeout=20s")
	refuse(t, []string{worker, "down"}, "exec", c.Name, worker, "--", "true")

	began = time.Now()
	change(t, "node", "start", c.Name, worker)
	c.kubectl(t, "wait", "node/"+worker, "--for=condition=Ready", "--timeout=40s")
	measure("node start to Ready", "%.1f s (limit 40)", time.Since(began).Seconds())
	r.kubectl(t, "wait", "pod/keeper-0", "--for=condition=Ready", "--timeout=60s")
	furniture.kubectl(t, "wait", "pod", here, "--for=condition=Ready", "--timeout=60s")
	measure("node start to all its pods Ready", "%.1f s", time.Since(began).Seconds())
	if have := r.exec(t, "keeper-0", "cat", "/data/file"); have != "kept" {
		t.Errorf("the volume holds %q after the node came back", have)
	}
	phases := strings.Fields(furniture.kubectl(t, "get", "pods", here, "-o", "jsonpath={.items[*].status.phase}"))
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

// componentKill kills every component of a cluster, one after the other. Each comes back by
// itself, the cluster works, and a pod with a connection that lives all the time is not
// touched: if the connection ends, its container does.
func componentKill(t *testing.T, c cluster) {
	f := furnished[c.Name]
	r := c.room(t)
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
		s, _ := look(t)
		old := s.component(t, c.Name, name)
		began := time.Now()
		change(t, "component", "kill", c.Name, name)
		eventually(t, 30*time.Second, name+" runs again after it was killed", func() (string, bool) {
			s, _ := look(t)
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

// works wants one more pod than before behind a new Service, which takes every component:
// API server and etcd keep it, the controller manager makes pods, the scheduler places them,
// kubelet and containerd run them, kube-proxy knows the Service, cloud gives it an address.
func (r room) works(t *testing.T, killed string, replicas int) {
	t.Helper()
	eventually(t, 30*time.Second, "the API server is ready", func() (string, bool) {
		said := r.try("get", "--raw", "/readyz")
		return said.String(), said.out == "ok"
	})
	// Its storage of each kind comes back to etcd by itself.
	eventually(t, 30*time.Second, "it takes a write", func() (string, bool) {
		said := r.try("scale", "deployment/balanced", fmt.Sprint("--replicas=", replicas))
		return said.String(), said.code == 0
	})
	r.rollout(t, "deployment/balanced")
	service := "after-" + strings.ReplaceAll(killed[strings.LastIndexByte(killed, '/')+1:], "_", "-")
	r.kubectl(t, "expose", "deployment/balanced", "--name="+service, "--type=LoadBalancer", "--port=80", "--target-port=8080")
	r.kubectl(t, "wait", "service/"+service, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=30s")
	address := r.get(t, "service/"+service, "{.status.loadBalancer.ingress[0].ip}")
	eventually(t, 15*time.Second, "the new Service answers on "+address, func() (string, bool) {
		body, err := visit("http://" + address + "/api/info")
		return fmt.Sprint(body, err), err == nil
	})
}

// componentStop stops the scheduler: it stays down, until it is started.
func componentStop(t *testing.T, c cluster) {
	const name = "kube-scheduler"
	r := c.room(t)
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
		s, ok := look(t)
		have := s.component(t, c.Name, name)
		node := r.get(t, "pod/waiting", "{.spec.nodeName}")
		return fmt.Sprintf("ok %t, %+v, pod on node %q", ok, have, node), !ok && have.State == "stopped" && have.Pid == 0 && node == ""
	})
	change(t, "component", "start", c.Name, name)
	r.ready(t, "waiting")
	s, _ := look(t)
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
	f := furnished[c.Name]
	server := func() component {
		s, _ := look(t)
		return s.component(t, c.Name, "kube-apiserver")
	}
	before, restarts := server(), "{.items[*].status.containerStatuses[*].restartCount}"
	began := time.Now()
	change(t, "node", "restart", c.Name, c.Name+"-control-plane")
	eventually(t, 10*time.Second, "the API server is ready while the first node restarts", func() (string, bool) {
		said := c.try("get", "--raw", "/readyz")
		return said.String(), said.out == "ok"
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
		said := f.try("exec", f.tool(), "--", "curl", "--silent", "--show-error", "--fail", "--max-time", "5", "http://web/api/info")
		return said.String(), said.code == 0
	})
	if now := server(); now != before {
		t.Errorf("the API server was %+v before its node restarted, and is %+v", before, now)
	}
}

// allWell: after all faults are over, nothing is left of them.
func allWell(t *testing.T) {
	eventually(t, 60*time.Second, "status is well", func() (string, bool) {
		s, ok := look(t)
		return fmt.Sprintf("%+v", s), ok && len(s.Faults) == 0
	})
}
