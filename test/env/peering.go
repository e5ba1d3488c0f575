// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env/execution"
)

// Install installs Liqo as these tests want it. On a cluster that has it, values that a test has set stay, unless --reset-values is among the flags.
func (c *Cluster) Install(t testing.TB, flags ...string) execution.Result {
	t.Helper()
	return c.Liqoctl(t, c.installation(flags...)...)
}

func (c *Cluster) installation(flags ...string) []string {
	return append([]string{"install", "--cluster-name", c.Name, "--cluster-labels", "topology.liqo.io/region=" + c.Name}, flags...)
}

// Installed installs Liqo unless it is there and healthy.
func (c *Cluster) Installed(t testing.TB) {
	t.Helper()
	installed(t, c)
}

// installed installs Liqo in clusters, at the same time, unless it is there and healthy.
func installed(t testing.TB, all ...*Cluster) {
	t.Helper()
	results := make([]execution.Result, len(all))
	var installing sync.WaitGroup
	for i, c := range all {
		installing.Go(func() {
			if c.TryLiqoctl("status").Code != 0 {
				results[i] = c.TryLiqoctl(c.installation()...)
			}
		})
	}
	installing.Wait()
	for i, c := range all {
		if results[i].Code != 0 {
			c.Show(t)
			t.Fatal(results[i])
		}
		if results[i].Args != "" {
			Healthy(t, c)
		}
	}
}

// Uninstalled removes Liqo and every trace of it, if it is there. Its peerings must be gone.
//
// Namespaces of tests before, which may still end, end first: what is offloaded is in use, and its uninstallation is refused.
func (c *Cluster) Uninstalled(t testing.TB) {
	t.Helper()
	Eventually(t, Hang, "no namespace of "+c.Name+" is ending", func() (string, bool) {
		seen := c.TryKubectl("", "get", "namespaces", "-o", `jsonpath={range .items[?(@.status.phase=="Terminating")]}{.metadata.name} {end}`)
		return seen.String(), seen.Code == 0 && strings.TrimSpace(seen.Out) == ""
	})
	if c.TryKubectl("", "get", "namespace", "liqo").Code == 0 {
		c.Liqoctl(t, "uninstall", "--purge")
	}
}

// PeerCommand is what the provider prints to be pasted on the consumer, without the program's name.
func (c *Cluster) PeerCommand(t testing.TB) []string {
	t.Helper()
	line := strings.TrimSpace(c.Liqoctl(t, "generate", "peer-command", "--only-command").Out)
	words := strings.Fields(line)
	if strings.Contains(line, "\n") || len(words) != 10 || strings.Join(words[:3], " ") != "liqoctl peer out-of-band" || words[3] != c.Name {
		t.Fatalf("the peer command of %s is %q", c.Name, line)
	}
	return words[1:]
}

// Peer makes c a consumer of provider, as a user would, and waits for the virtual node.
func (c *Cluster) Peer(t testing.TB, provider *Cluster) {
	t.Helper()
	c.Liqoctl(t, provider.PeerCommand(t)...)
	c.NodeReady(t, provider)
}

// Peered installs Liqo in both clusters and peers them, unless that has been done.
func Peered(t testing.TB, consumer, provider *Cluster) {
	t.Helper()
	installed(t, consumer, provider)
	if node, err := consumer.VirtualNode(provider); err == nil {
		if status, _ := Readiness(node); status == corev1.ConditionTrue && strings.HasPrefix(consumer.Columns(t, provider), "Established ") {
			return
		}
	}
	consumer.Peer(t, provider)
}

// NotPeered installs Liqo in both clusters and ends every peering between them, also by force.
func NotPeered(t testing.TB, a, b *Cluster) {
	t.Helper()
	installed(t, a, b)
	Unpeered(t, a, b)
	for _, c := range []*Cluster{a, b} {
		Settled(t, c)
	}
}

// Unpeered ends every peering between two clusters, also by force. Clusters without Liqo have none.
func Unpeered(t testing.TB, a, b *Cluster) {
	t.Helper()
	for _, pair := range [][2]*Cluster{{a, b}, {b, a}} {
		here, there := pair[0], pair[1]
		var all discovery.ForeignClusterList
		if err := here.API.List(context.Background(), &all); err != nil {
			continue // not installed
		}
		for _, fc := range all.Items {
			kind := "out-of-band"
			if fc.Spec.PeeringType == discovery.InBand {
				kind = "in-band"
			}
			if r := here.TryLiqoctl("unpeer", kind, fc.Name, "--force"); r.Code != 0 && there.Foreign(t, here) != nil {
				t.Logf("unpeer of %s in %s: %s", fc.Name, here.Name, r)
			}
		}
	}
	Eventually(t, Hang, "no ForeignCluster is left", func() (string, bool) {
		var seen []string
		for _, c := range []*Cluster{a, b} {
			var all discovery.ForeignClusterList
			if err := c.API.List(context.Background(), &all); err != nil {
				continue
			}
			for _, fc := range all.Items {
				seen = append(seen, c.Name+"/"+fc.Name)
			}
		}
		return strings.Join(seen, " "), len(seen) == 0
	})
}

// Foreign returns the ForeignCluster of other, or nil.
func (c *Cluster) Foreign(t testing.TB, other *Cluster) *discovery.ForeignCluster {
	t.Helper()
	var fc discovery.ForeignCluster
	err := c.API.Get(context.Background(), client.ObjectKey{Name: other.Name}, &fc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil { // it may exist: an empty one is neither absent nor in any state
		t.Logf("%s: get ForeignCluster %s: %v", c.Name, other.Name, err)
		return &discovery.ForeignCluster{}
	}
	return &fc
}

// PeeringCondition returns one condition of a ForeignCluster, which may be nil.
func PeeringCondition(fc *discovery.ForeignCluster, kind discovery.PeeringConditionType) discovery.PeeringCondition {
	if fc != nil {
		for _, condition := range fc.Status.PeeringConditions {
			if condition.Type == kind {
				return condition
			}
		}
	}
	return discovery.PeeringCondition{Type: kind}
}

// Columns are what `kubectl get foreignclusters` shows of other: outgoing, incoming, networking, authentication; or absent.
func (c *Cluster) Columns(t testing.TB, other *Cluster) string {
	t.Helper()
	fc := c.Foreign(t, other)
	if fc == nil {
		return "absent"
	}
	words := []string{}
	for _, kind := range []discovery.PeeringConditionType{
		discovery.OutgoingPeering, discovery.IncomingPeering, discovery.NetworkStatus, discovery.AuthenticationStatus,
	} {
		words = append(words, string(PeeringCondition(fc, kind).Status))
	}
	return strings.Join(words, " ")
}

// WantColumns waits until the columns are these.
func (c *Cluster) WantColumns(t testing.TB, other *Cluster, want string) {
	t.Helper()
	Eventually(t, Hang, c.Name+" shows of "+other.Name+": "+want, func() (string, bool) {
		have := c.Columns(t, other)
		return have, have == want
	})
}

// VirtualNode is the node that stands for a provider.
func (c *Cluster) VirtualNode(provider *Cluster) (*corev1.Node, error) {
	var node corev1.Node
	err := c.API.Get(context.Background(), client.ObjectKey{Name: "liqo-" + provider.Name}, &node)
	return &node, err
}

// Readiness returns a node's condition Ready, and its reason and message.
func Readiness(node *corev1.Node) (corev1.ConditionStatus, string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status, condition.Reason + ": " + condition.Message
		}
	}
	return corev1.ConditionUnknown, "no condition Ready"
}

// NodeReady waits until the virtual node is Ready, and returns how long that took.
func (c *Cluster) NodeReady(t testing.TB, provider *Cluster) time.Duration {
	t.Helper()
	return Eventually(t, Hang, "the virtual node of "+provider.Name+" is Ready in "+c.Name, func() (string, bool) {
		node, err := c.VirtualNode(provider)
		if err != nil {
			return err.Error(), false
		}
		status, why := Readiness(node)
		return fmt.Sprint(status, " ", why), status == corev1.ConditionTrue
	})
}

// Tenants are the names of tenant namespaces.
func (c *Cluster) Tenants(t testing.TB) (names []string) {
	t.Helper()
	var all corev1.NamespaceList
	if err := c.API.List(context.Background(), &all, client.MatchingLabels{labels.TenantNamespace: "true"}); err != nil {
		t.Fatal(err)
	}
	for _, ns := range all.Items {
		names = append(names, ns.Name)
	}
	return names
}

// Settled waits until all namespaces of peerings are gone: the next peering would wait for one that is still being deleted.
func Settled(t testing.TB, c *Cluster) {
	t.Helper()
	Eventually(t, Hang, "no tenant namespace is left in "+c.Name, func() (string, bool) {
		left := c.Tenants(t)
		return strings.Join(left, " "), len(left) == 0
	})
}

// Healthy waits until the cluster's Liqo answers: a status may date from before a fault, an answer does not.
func Healthy(t testing.TB, c *Cluster) {
	t.Helper()
	insecure := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // its certificate is its own
	}}
	Eventually(t, Hang, "the control plane of "+c.Name+" works", func() (string, bool) {
		if r := c.TryLiqoctl("status"); r.Code != 0 {
			return r.String(), false
		}
		if !c.Nodes[0].Address.IsValid() {
			return "", true // not the playground's: its addresses need not be reachable from here
		}
		r := c.TryLiqoctl("generate", "peer-command", "--only-command")
		words := strings.Fields(r.Out)
		i := slices.Index(words, "--auth-url")
		if r.Code != 0 || i < 0 {
			return r.String(), false
		}
		answer, err := insecure.Get(words[i+1] + "/ids")
		if err != nil {
			return err.Error(), false
		}
		_ = answer.Body.Close()
		return answer.Status, answer.StatusCode == http.StatusOK
	})
}
