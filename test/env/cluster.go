// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env/audit"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/inventory"
)

// Cluster is one of the playground's.
type Cluster struct {
	Name                           string // for Liqo, and so for tests
	NodePrefix                     string // its name in the playground, with which the names of its nodes start
	PodCIDR, ServiceCIDR, NodeCIDR netip.Prefix
	Nodes                          []*Node
	API                            client.WithWatch
	AuditLog                       string // path; empty if there is none

	env        *Env
	kubeconfig string
	config     *rest.Config
}

// Node is one node of a cluster.
type Node struct {
	Name    string
	Address netip.Addr
	Cluster *Cluster
}

// Config leads a client of client-go to the cluster.
func (c *Cluster) Config() *rest.Config { return c.config }

// Kubeconfig is the file that leads to the cluster.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Everything lists all objects of the cluster; see the function of this name.
func (c *Cluster) Everything(t testing.TB) (all []string) {
	t.Helper()
	Eventually(t, 30*time.Second, "all objects of "+c.Name+" are listed", func() (string, bool) {
		var err error
		all, err = inventory.Everything(c.config)
		return fmt.Sprint(err), err == nil
	})
	return all
}

// NothingNew waits until the cluster has no object that it had not before.
func (c *Cluster) NothingNew(t testing.TB, before []string, within time.Duration) {
	t.Helper()
	Eventually(t, within, "no object is left over in "+c.Name, func() (string, bool) {
		now, err := inventory.Everything(c.config)
		if err != nil {
			return err.Error(), false
		}
		extra := inventory.Added(before, now)
		return strings.Join(extra, "\n            "), len(extra) == 0
	})
}

// NothingOfLiqo waits until no object of Liqo is left. The namespace is a user's own whose name holds the word liqo; it and what a user has
// there may stay. Empty: there is none.
func (c *Cluster) NothingOfLiqo(t testing.TB, namespace string) {
	t.Helper()
	Eventually(t, Hang, "nothing of Liqo is left in "+c.Name, func() (string, bool) {
		ours := slices.DeleteFunc(c.Everything(t), func(line string) bool {
			users := namespace != "" && strings.Contains(line, namespace) && !strings.Contains(line, "liqo.io")
			return users || !strings.Contains(line, "liqo")
		})
		return strings.Join(ours, "\n            "), len(ours) == 0
	})
}

// Calls returns the requests of Liqo's identities (see the function of this name), in the clock of this machine.
func (c *Cluster) Calls(t testing.TB, from, to time.Time) []audit.Call {
	t.Helper()
	all, err := audit.Calls(c.AuditLog, from, to)
	if err != nil {
		t.Fatalf("audit log of %s: %v", c.Name, err)
	}
	return all
}

// TryLiqoctl runs liqoctl against the cluster.
func (c *Cluster) TryLiqoctl(args ...string) execution.Result {
	return execution.Run("", filepath.Join(c.env.Bin, "liqoctl"), append(args, "--kubeconfig", c.kubeconfig)...)
}

// LiqoctlCommand is a command that the test starts and ends itself.
func (c *Cluster) LiqoctlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(c.env.Bin, "liqoctl"), append(args, "--kubeconfig", c.kubeconfig)...)
}

// Liqoctl wants success.
func (c *Cluster) Liqoctl(t testing.TB, args ...string) execution.Result {
	t.Helper()
	r := c.TryLiqoctl(args...)
	if r.Code != 0 {
		c.Show(t)
		t.Fatal(r)
	}
	return r
}

// TryKubectl runs kubectl against the cluster.
func (c *Cluster) TryKubectl(stdin string, args ...string) execution.Result {
	return execution.Run(stdin, filepath.Join(c.env.Tools, "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// Kubectl wants success and returns what was printed.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	r := c.TryKubectl("", args...)
	if r.Code != 0 {
		t.Fatal(r)
	}
	return strings.TrimSpace(r.Out)
}

// Apply applies a manifest.
func (c *Cluster) Apply(t testing.TB, manifest string) {
	t.Helper()
	if r := c.TryKubectl(manifest, "apply", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
}

// Show logs what helps to understand a failure.
func (c *Cluster) Show(t testing.TB) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "nodes", "-o", "wide"},
		{"get", "foreignclusters", "-o", "wide"},
		{"get", "tunnelendpoints.net.liqo.io,networkconfigs.net.liqo.io", "-A", "-o", "yaml"},
		{"get", "pods,deployments,daemonsets,services", "-A", "-l", "app.kubernetes.io/part-of=liqo", "-o", "wide"},
		{"-n", "liqo", "logs", "deployment/liqo-controller-manager", "--tail=40"},
		{"-n", "liqo", "logs", "deployment/liqo-gateway", "--tail=40"},
		{"-n", "liqo", "logs", "daemonset/liqo-route", "--tail=20", "--prefix", "--all-pods"},
	} {
		r := c.TryKubectl("", args...)
		t.Logf("%s: kubectl %s\n%s%s", c.Name, strings.Join(args, " "), r.Out, r.Err)
	}
}

// Eventually asks until the answer is good, and returns how long that took.
func Eventually(t testing.TB, within time.Duration, what string, ask func() (seen string, good bool)) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := time.Since(began) > within // asked once more after that: the machine may have stood still
		seen, good := ask()
		switch {
		case good:
			return time.Since(began)
		case last:
			t.Fatalf("not within %v: %s\n      seen: %s", within, what, seen)
		}
		<-tick.C
	}
}
