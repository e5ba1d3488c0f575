// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/networks"
)

const (
	gatewayLabel, gatewayActive = labels.Gateway, labels.GatewayActive
	laneLabel                   = labels.GatewayLane
	// agents selects gateways and node agents.
	agents = labels.AppName + " in (gateway,route)"
)

// length returns how long a fault lasts: long enough that its effect shows, or, in the long run, as long as the targets define.
func length(short, whole time.Duration) time.Duration {
	if *long {
		return whole
	}
	return short
}

// Targets. They are compared with the measured times in the report and do not fail the test, see outageBound: three clusters on two cores
// stand still for more than a second without any fault, most of all while two API servers start.
const (
	repaired  = 5 * time.Second  // after the end of a fault that heals without help
	restarted = 10 * time.Second // gap while the only gateway restarts
	switched  = 2 * time.Second  // gap while traffic leaves a lane, and for faults that traffic should not notice
)

// allFaults are the faults for an installation with a number of lanes per cluster.
func allFaults(lanes int) (all []fault) {
	all = append(gatewayFaults(lanes), nodeFaults(lanes)...)
	others := append(deletions(lanes), outerFaults()...)
	for i := range others {
		// A second lane makes no difference to them, and the short run covers them with one lane.
		others[i].long = others[i].long || lanes > 1
	}
	return append(all, others...)
}

// gatewayFaults end one gateway at a time. With two of them, traffic must switch to the other one.
func gatewayFaults(lanes int) (all []fault) {
	withTarget := func(f fault) fault {
		f.gap = restarted
		if lanes > 1 {
			f.gap, f.streams = switched, true
		}
		return f
	}
	for lane := range lanes {
		all = append(all,
			withTarget(fault{name: fmt.Sprintf("gateway %d deleted", lane), start: func(t *testing.T) {
				alpha.Kubectl(t, "-n", "liqo", "delete", "pod", gateway(t, alpha, lane).Name, "--wait=false")
			}}),
			withTarget(fault{name: fmt.Sprintf("gateway %d killed", lane), start: func(t *testing.T) {
				kill(t, gateway(t, beta, lane))
			}}),
			withTarget(fault{name: fmt.Sprintf("gateway %d moved to another node", lane), start: func(t *testing.T) {
				pod := gateway(t, alpha, lane)
				alpha.Kubectl(t, "cordon", pod.Node.Name)
				alpha.Kubectl(t, "-n", "liqo", "delete", "pod", pod.Name, "--wait=false")
			}, hold: 5 * time.Second, end: func(t *testing.T) {
				for _, node := range alpha.Nodes {
					alpha.Kubectl(t, "uncordon", node.Name)
				}
				if lanes > 1 {
					separateGateways(t, alpha, lane)
				}
			}}),
		)
	}
	return all
}

// separateGateways moves the gateways of a cluster with two nodes back to different nodes, so that the next fault hits one gateway only:
// Kubernetes does not move running pods.
func separateGateways(t *testing.T, c *env.Cluster, lane int) {
	t.Helper()
	env.Eventually(t, env.Hang, "the gateways of "+c.Name+" run on different nodes", func() (string, bool) {
		all, err := gateways(c)
		if err != nil || len(all) < 2 || all[0].Node != all[1].Node {
			return fmt.Sprint(len(all), " gateways, ", err), err == nil && len(all) > 1
		}
		c.Kubectl(t, "-n", "liqo", "delete", "pod", all[lane].Name)
		return all[0].Name + " and " + all[1].Name + " are both on " + all[0].Node.Name, false
	})
}

func kill(t *testing.T, pod env.Pod) {
	t.Helper()
	number, err := pod.Process("liqo")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
		t.Fatalf("kill process %d of %s: %v", number, pod.Name, err)
	}
}

// deletions delete the kernel objects that Liqo has created, on a node and in a gateway.
func deletions(lanes int) (all []fault) {
	rules := "for p in $(seq 18952 18991); do while ip rule del pref $p 2>/dev/null; do :; done; done"
	scripts := []struct {
		name, node, gateway string
		long                bool
	}{
		{"packet filter flushed", "nft flush table ip liqo", "nft flush table ip liqo", false},
		{"packet filter deleted", "nft delete table ip liqo", "nft delete table ip liqo", true},
		{"routes deleted", "ip route flush table 18952", "ip route flush table 18952; ip route flush table main proto 98", false},
		{"rules deleted", rules, rules, true},
		{"overlay down", "ip link set liqo.vxlan down", "ip link set liqo.vxlan down", true},
		{"overlay deleted", "ip link del liqo.vxlan", "ip link del liqo.vxlan", false},
		{"tunnel down", "", "ip link set liqo.tunnel down", true},
		{"tunnel deleted", "", "ip link del liqo.tunnel", false},
	}
	for _, s := range scripts {
		if s.node != "" {
			all = append(all, fault{name: s.name + " on every node of alpha", long: s.long, heal: repaired, start: func(t *testing.T) {
				for _, node := range alpha.Nodes {
					node.Net().Run(t, "sh", "-c", s.node)
				}
			}})
		}
		all = append(all, fault{name: s.name + " in every gateway of beta", long: s.long, heal: repaired, start: func(t *testing.T) {
			for lane := range lanes {
				inside(t, gateway(t, beta, lane)).Run(t, "sh", "-c", s.gateway)
			}
		}})
	}
	return all
}

// outerFaults are faults outside of the network's own components.
func outerFaults() []fault {
	both := func(f func(c *env.Cluster)) {
		var all sync.WaitGroup
		for _, c := range []*env.Cluster{alpha, beta} {
			all.Go(func() { f(c) })
		}
		all.Wait()
	}
	var restarts string
	return []fault{
		{
			name: "API servers of alpha and beta down", hold: length(30*time.Second, 5*time.Minute), gap: switched, streams: true, heal: repaired,
			start: func(t *testing.T) {
				restarts = agentRestarts(t)
				both(func(c *env.Cluster) { clusters.Do(t, "component", "stop", c.Name, "kube-apiserver") })
			},
			end: func(t *testing.T) {
				both(func(c *env.Cluster) { clusters.Do(t, "component", "start", c.Name, "kube-apiserver") })
				for _, c := range []*env.Cluster{alpha, beta} {
					env.Eventually(t, env.Hang, "the API server of "+c.Name+" answers", func() (string, bool) {
						result := c.TryKubectl("", "get", "--raw", "/readyz")
						return result.String(), result.Code == 0
					})
				}
				if now := agentRestarts(t); now != restarts {
					t.Errorf("gateways and node agents restarted: %s, were %s", now, restarts)
				}
			},
			afterwards: func(t *testing.T) {
				start, pairs := time.Now(), [][2]*env.Cluster{{alpha, beta}, {beta, alpha}}
				for _, pair := range pairs {
					// Until Kubernetes' own components are back, no webhook can be called.
					env.Eventually(t, env.Hang, pair[0].Name+" accepts a change of a ForeignCluster", func() (string, bool) {
						err := networks.Doubt(pair[0], pair[1])
						return fmt.Sprint(err), err == nil
					})
				}
				for _, pair := range pairs {
					// Kubernetes' own components, such as kube-proxy, take up to a minute and a half to come back.
					established(t, pair[0], pair[1])
				}
				clusters.Measure("API servers back, to the correct status of the network", "%.1f s", time.Since(start).Seconds())
			},
		},
		{
			name: "alpha and beta cut off from each other", hold: length(20*time.Second, time.Minute), heal: repaired,
			start: func(t *testing.T) { clusters.Do(t, "fault", "partition", alpha.Name, beta.Name) },
			end:   func(t *testing.T) { clusters.Do(t, "fault", "heal", alpha.Name, beta.Name) },
		},
		{
			name: "keys rotated in alpha", gap: switched, streams: true,
			start: func(t *testing.T) { rotate(t, alpha) },
		},
		{
			name: "controller managers killed", gap: switched, streams: true,
			start: func(t *testing.T) {
				for _, c := range clusters.Clusters {
					c.Kubectl(t, "-n", "liqo", "delete", "pods", "-l", labels.AppName+"=controller-manager", "--grace-period=0", "--force", "--wait=false")
				}
			},
		},
	}
}

// agentRestarts returns the restart count of each gateway and node agent of alpha and beta.
func agentRestarts(t *testing.T) (all string) {
	t.Helper()
	for _, c := range []*env.Cluster{alpha, beta} {
		all += c.Kubectl(t, "-n", "liqo", "get", "pods", "-l", agents, "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[*].restartCount} {end}`)
	}
	return all
}

// rotate requests new keys and waits until a peer knows them, and some seconds more, until both ends use them.
func rotate(t *testing.T, c *env.Cluster) {
	t.Helper()
	before := see(t, beta, c).Spec.Lanes
	c.Kubectl(t, "-n", "liqo", "annotate", "secret", "liqo-gateway-keys", labels.RotateKeys+"="+time.Now().Format(time.RFC3339Nano), "--overwrite")
	env.Eventually(t, env.Hang, "beta knows the new keys of "+c.Name, func() (string, bool) {
		now := see(t, beta, c).Spec.Lanes
		if len(now) != len(before) || len(now) == 0 {
			return fmt.Sprintf("%d lanes, had %d", len(now), len(before)), false
		}
		for i := range now {
			if now[i].PublicKey == before[i].PublicKey {
				return fmt.Sprintf("lane %d has its old key", i), false
			}
		}
		return "", true
	})
	<-time.After(5 * time.Second) // the switch to the new private key follows, and belongs to the measured fault
}

// nodeFaults switch nodes off.
func nodeFaults(lanes int) []fault {
	ofGateway := nodeOff("node of gateway 0 off", length(15*time.Second, time.Minute), lanes, func(t *testing.T) *env.Node {
		return gateway(t, alpha, 0).Node // its node at the start of the fault
	})
	all := []fault{ofGateway}
	for _, c := range clusters.Clusters {
		for _, node := range c.Nodes {
			f := nodeOff("node "+node.Name+" restarted", 0, lanes, func(*testing.T) *env.Node { return node })
			f.long = true
			if len(c.Nodes) == 1 { // both gateways run on it
				f.gap, f.streams = 0, false
			}
			all = append(all, f)
		}
	}
	return all
}

func nodeOff(name string, hold time.Duration, lanes int, choose func(*testing.T) *env.Node) fault {
	var node *env.Node
	f := fault{
		name: name, hold: hold, heal: repaired,
		off: func(t *testing.T) *env.Node {
			node = choose(t)
			return node
		},
		start: func(t *testing.T) { clusters.Do(t, "node", "stop", node.Cluster.Name, node.Name) },
		end: func(t *testing.T) {
			clusters.Do(t, "node", "start", node.Cluster.Name, node.Name)
			nodeUp(t, node)
		},
	}
	if lanes > 1 {
		f.gap, f.streams = switched, true
	}
	return f
}
