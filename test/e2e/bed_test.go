// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

// cluster is one of the playground's.
type cluster struct {
	Name       string
	kubeconfig string
	audit      string // its audit log
	config     *rest.Config
	api        client.WithWatch
}

// try runs liqoctl against the cluster.
func (c *cluster) try(args ...string) result {
	return execute("", nil, filepath.Join(bin, "liqoctl"), append(args, "--kubeconfig", c.kubeconfig)...)
}

// liqoctl wants success.
func (c *cluster) liqoctl(t testing.TB, args ...string) result {
	t.Helper()
	said := c.try(args...)
	if said.code != 0 {
		c.show(t)
		t.Fatal(said)
	}
	return said
}

// kubectl wants success and returns what it printed.
func (c *cluster) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	said := c.tryKubectl("", args...)
	if said.code != 0 {
		t.Fatal(said)
	}
	return strings.TrimSpace(said.out)
}

func (c *cluster) tryKubectl(stdin string, args ...string) result {
	return execute(stdin, nil, filepath.Join(tools, "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// show logs what helps to understand a failure.
func (c *cluster) show(t testing.TB) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "foreignclusters", "-o", "yaml"},
		{"get", "resourceslices.sharing.liqo.io", "-A", "-o", "yaml"},
		{"get", "networkconfigs.net.liqo.io,tunnelendpoints.net.liqo.io", "-A", "-o", "yaml"},
		{"get", "pods,deployments,daemonsets,services", "-A", "-l", "app.kubernetes.io/part-of=liqo", "-o", "wide"},
		{"get", "nodes"},
		{"-n", "liqo", "logs", "deployment/liqo-controller-manager", "--tail=40"},
		{"-n", "liqo", "logs", "deployment/liqo-auth", "--tail=20"},
		{"-n", "liqo", "logs", "deployment/liqo-gateway", "--tail=20"},
		{"-n", "liqo", "logs", "daemonset/liqo-route", "--tail=10", "--prefix", "--all-pods"},
	} {
		said := c.tryKubectl("", args...)
		t.Logf("%s: kubectl %s\n%s%s", c.Name, strings.Join(args, " "), said.out, said.err)
	}
}

// eventually asks until the answer is good.
func eventually(t testing.TB, within time.Duration, what string, ask func() (seen string, good bool)) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := time.Since(began) > within // what was asked before is of before
		seen, good := ask()
		switch {
		case good:
			return time.Since(began)
		case last:
			for _, c := range []*cluster{rome, milan} {
				c.show(t)
			}
			t.Fatalf("not within %v: %s\n      seen: %s", within, what, seen)
		}
		<-tick.C
	}
}

// peerCommand is what the provider prints to be pasted on the consumer, without the program's name.
func (c *cluster) peerCommand(t testing.TB) []string {
	t.Helper()
	line := strings.TrimSpace(c.liqoctl(t, "generate", "peer-command", "--only-command").out)
	words := strings.Fields(line)
	if strings.Contains(line, "\n") || len(words) != 10 || strings.Join(words[:3], " ") != "liqoctl peer out-of-band" || words[3] != c.Name {
		t.Fatalf("the peer command of %s is %q", c.Name, line)
	}
	return words[1:]
}

// peer lets c use provider.
func (c *cluster) peer(t testing.TB, provider *cluster) {
	t.Helper()
	c.liqoctl(t, provider.peerCommand(t)...)
	c.nodeReady(t, provider, 10*time.Second)
}

// foreign returns the ForeignCluster of other, or nil.
func (c *cluster) foreign(t testing.TB, other *cluster) *discovery.ForeignCluster {
	t.Helper()
	var fc discovery.ForeignCluster
	err := c.api.Get(context.Background(), client.ObjectKey{Name: other.Name}, &fc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil { // it may be there: an empty one is neither gone nor in any state
		t.Logf("%s: get ForeignCluster %s: %v", c.Name, other.Name, err)
		return &discovery.ForeignCluster{}
	}
	return &fc
}

// condition returns status and reason of one aspect of the peering.
func condition(fc *discovery.ForeignCluster, kind discovery.PeeringConditionType) discovery.PeeringCondition {
	if fc != nil {
		for _, condition := range fc.Status.PeeringConditions {
			if condition.Type == kind {
				return condition
			}
		}
	}
	return discovery.PeeringCondition{Type: kind}
}

// columns are what kubectl get foreignclusters shows of other: outgoing, incoming, networking, authentication.
func (c *cluster) columns(t testing.TB, other *cluster) string {
	t.Helper()
	fc := c.foreign(t, other)
	if fc == nil {
		return "absent"
	}
	words := []string{}
	for _, kind := range []discovery.PeeringConditionType{discovery.OutgoingPeering, discovery.IncomingPeering, discovery.NetworkStatus, discovery.AuthenticationStatus} {
		words = append(words, string(condition(fc, kind).Status))
	}
	return strings.Join(words, " ")
}

func (c *cluster) node(provider *cluster) (*corev1.Node, error) {
	var node corev1.Node
	err := c.api.Get(context.Background(), client.ObjectKey{Name: "liqo-" + provider.Name}, &node)
	return &node, err
}

func readiness(node *corev1.Node) (corev1.ConditionStatus, string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status, condition.Reason + ": " + condition.Message
		}
	}
	return corev1.ConditionUnknown, "no condition Ready"
}

func (c *cluster) nodeReady(t testing.TB, provider *cluster, within time.Duration) time.Duration {
	t.Helper()
	return eventually(t, within, "virtual node of "+provider.Name+" is Ready in "+c.Name, func() (string, bool) {
		node, err := c.node(provider)
		if err != nil {
			return err.Error(), false
		}
		status, why := readiness(node)
		return fmt.Sprint(status, " ", why), status == corev1.ConditionTrue
	})
}

// unpeered makes sure that no peering is left between the two, by force if need be.
func unpeered(t testing.TB) {
	t.Helper()
	for _, pair := range [][2]*cluster{{rome, milan}, {milan, rome}} {
		here, there := pair[0], pair[1]
		var all discovery.ForeignClusterList
		if err := here.api.List(context.Background(), &all); err != nil {
			continue // not installed
		}
		for _, fc := range all.Items {
			if said := here.try("unpeer", "out-of-band", fc.Name, "--force"); said.code != 0 && there.foreign(t, here) != nil {
				t.Logf("unpeer of %s in %s: %s", fc.Name, here.Name, said)
			}
		}
	}
	eventually(t, 60*time.Second, "no ForeignCluster is left", func() (string, bool) {
		var seen []string
		for _, c := range []*cluster{rome, milan} {
			var all discovery.ForeignClusterList
			if err := c.api.List(context.Background(), &all); err != nil {
				continue
			}
			for _, fc := range all.Items {
				seen = append(seen, c.Name+"/"+fc.Name)
			}
		}
		return strings.Join(seen, " "), len(seen) == 0
	})
}

// tenants are the names of tenant namespaces.
func (c *cluster) tenants(t testing.TB) (names []string) {
	t.Helper()
	var all corev1.NamespaceList
	if err := c.api.List(context.Background(), &all, client.MatchingLabels{labels.TenantNamespace: "true"}); err != nil {
		t.Fatal(err)
	}
	for _, ns := range all.Items {
		names = append(names, ns.Name)
	}
	return names
}
