// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Hang guards against waiting for ever. It is no target: it is more than ten times what anything takes that is waited for.
// Watches that an API server dropped are made again up to a minute after it is back, by Kubernetes' own libraries.
const Hang = 3 * time.Minute

// fileName replaces what a folder's name should not hold.
var fileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// asked is what kubectl is asked of each cluster after a failure, by the name of the file. No Secret is among it.
var asked = map[string][]string{
	"nodes.yaml":      {"get", "nodes", "-o", "yaml"},
	"workloads.txt":   {"get", "pods,deployments,daemonsets,services,endpointslices", "-A", "-o", "wide"},
	"pods.yaml":       {"get", "pods", "-A", "-o", "yaml"},
	"namespaces.yaml": {"get", "namespaces", "-o", "yaml"},
	"events.txt":      {"get", "events", "-A", "--sort-by=.lastTimestamp"},
	"peering.yaml":    {"get", "foreignclusters.discovery.liqo.io,resourceslices.sharing.liqo.io", "-A", "-o", "yaml"},
	"network.yaml":    {"get", "networkconfigs.net.liqo.io,tunnelendpoints.net.liqo.io,ipmappings.net.liqo.io", "-A", "-o", "yaml"},
	"offloading.yaml": {
		"get",
		"namespaceoffloadings.offloading.liqo.io,namespacemaps.virtualkubelet.liqo.io,shadowpods.virtualkubelet.liqo.io,shadowendpointslices.virtualkubelet.liqo.io",
		"-A", "-o", "yaml",
	},
}

// hostState is what a node's network namespace is asked: links, addresses, routes, rules and packet rules.
const hostState = "ip -d link; ip address; ip route show table all; ip rule; ip neighbour; nft list ruleset"

// Step must be the first call of a test that stands alone. If the test fails, it leaves a folder with events, conditions, logs of our
// processes and the state of the hosts of all clusters, and prints its path. What it returns does so at once: with `defer clusters.Step(t)()` the
// folder shows the clusters before the clean-ups of the test, which take its pods and their events away.
func (b *Env) Step(t *testing.T) (now func()) {
	t.Helper()
	collected := false
	now = func() {
		t.Helper()
		if t.Failed() && !collected {
			collected = true
			t.Logf("events, conditions, logs and host state of the clusters are in %s", b.collect(t.Name()))
		}
	}
	t.Cleanup(now)
	return now
}

// collect writes what the clusters look like now, and returns the folder.
func (b *Env) collect(name string) string {
	folder, err := filepath.Abs(filepath.Join(b.Bin, "failures", fileName.ReplaceAllString(name, "-")))
	if err != nil {
		return err.Error()
	}
	if err := os.RemoveAll(folder); err != nil {
		return err.Error()
	}
	write := func(file, text string) {
		path := filepath.Join(folder, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			_ = os.WriteFile(path, []byte(text), 0o644) // what cannot be written is missed in the folder
		}
	}
	for _, c := range b.Clusters {
		for file, args := range asked {
			r := c.TryKubectl("", append(args, "--request-timeout=20s")...)
			write(filepath.Join(c.Name, file), r.Out+r.Err)
		}
		for _, pod := range c.ours() {
			namespace, pod, _ := strings.Cut(pod, "/")
			for file, args := range map[string][]string{".log": nil, ".previous.log": {"--previous"}} {
				r := c.TryKubectl("", append([]string{"-n", namespace, "logs", pod, "--all-containers", "--tail=2000", "--request-timeout=20s"}, args...)...)
				if r.Out != "" || args == nil {
					write(filepath.Join(c.Name, "logs", namespace+"-"+pod+file), r.Out+r.Err)
				}
			}
		}
		if !b.playground {
			continue
		}
		for _, node := range c.Nodes {
			r := node.Net().Try("sh", "-c", hostState)
			write(filepath.Join(c.Name, "hosts", node.Name+".txt"), r.Out+r.Err)
		}
	}
	return folder
}

// ours are namespace and name of the pods of our processes.
func (c *Cluster) ours() (all []string) {
	r := c.TryKubectl("", "get", "pods", "-A", "-l", "app.kubernetes.io/part-of=liqo", "--request-timeout=20s",
		"-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	for line := range strings.Lines(r.Out) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	if len(all) == 0 && r.Code != 0 {
		fmt.Fprintln(os.Stderr, r)
	}
	return all
}
