// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/inventory"
)

func nothingInstalled(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"generate", "peer-command"}, {"uninstall"}} {
		if result := rome.TryLiqoctl(args...); result.Code != 1 || !strings.Contains(result.Out+result.Err, "install") {
			t.Errorf("want exit code 1 and a hint to install: %s", result)
		}
	}
}

func install(t *testing.T) {
	eachAlone(t, func(t *testing.T, c *env.Cluster) {
		clusters.Measure("install "+c.Name, "%.1f s", c.Install(t).Took.Seconds())
		c.Liqoctl(t, "status")
		networkWorkloads(t, c, true)
		own := []string{"-n", "liqo", "get", "configmap/liqo-clusterid-configmap", "secret/auth-token", "-o", "jsonpath={.items[*].data}"}
		before := c.Kubectl(t, own...)
		clusters.Measure("install "+c.Name+" again", "%.1f s", c.Install(t).Took.Seconds())
		if after := c.Kubectl(t, own...); after != before {
			t.Errorf("a second install changed identity or token of %s", c.Name)
		}
	})
}

func peerAndColumns(t *testing.T) {
	rome.Peer(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
	header := strings.Fields(strings.Split(rome.Kubectl(t, "get", "foreignclusters"), "\n")[0])
	if want := strings.Fields("NAME TYPE OUTGOING PEERING INCOMING PEERING NETWORKING AUTHENTICATION AGE"); !slices.Equal(header, want) {
		t.Errorf("columns %v, want %v", header, want)
	}
	node, err := rome.VirtualNode(milan)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		labels.Type: labels.TypeVirtualNode, "kubernetes.io/role": "agent", "topology.liqo.io/region": "milan",
		"kubernetes.io/os": "linux", "kubernetes.io/arch": milan.Kubectl(t, "get", "node", milan.Nodes[0].Name, "-o", "jsonpath={.status.nodeInfo.architecture}"),
		labels.RemoteClusterID: milan.ID(t), "kubernetes.io/hostname": "liqo-milan",
	} {
		if have := node.Labels[key]; have != want {
			t.Errorf("label %s of the node is %q, want %q", key, have, want)
		}
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == labels.TaintVirtualNode && taint.Value == "true" && taint.Effect == corev1.TaintEffectNoExecute
	}) {
		t.Errorf("taints of the node: %v", node.Spec.Taints)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if quantity := node.Status.Allocatable[name]; quantity.Sign() <= 0 {
			t.Errorf("the node has no %s: %v", name, node.Status.Allocatable)
		}
	}
	if line := rome.Kubectl(t, "get", "node", "liqo-milan", "--no-headers"); !strings.Contains(line, " agent ") || !strings.Contains(line, " Ready ") {
		t.Errorf("kubectl get node shows %q", line)
	}
	showsNetworks(t)
}

// changesShare changes the percentage while everything runs, and reads the node.
func changesShare(t *testing.T) {
	cpu := func() resource.Quantity {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			t.Fatal(err)
		}
		return node.Status.Allocatable[corev1.ResourceCPU]
	}
	before := cpu()
	share := func(percentage string) {
		t.Helper()
		milan.Kubectl(t, "-n", "liqo", "patch", "configmap", "liqo-resource-sharing", "--type=merge", "-p", `{"data":{"percentage":"`+percentage+`"}}`)
	}
	defer share("90") // what the chart sets
	share("45")
	took := env.Eventually(t, env.Hang, "half the share gives half the capacity", func() (string, bool) {
		have := cpu()
		return have.String(), have.MilliValue() < before.MilliValue()*6/10
	})
	clusters.Measure("change of the sharing percentage to the node", "%.2f s", took.Seconds())
	share("90")
	env.Eventually(t, env.Hang, "the old share is back", func() (string, bool) {
		have := cpu()
		return have.String(), have.MilliValue() > before.MilliValue()*9/10
	})
}

// badInput: the command changes nothing, reports why, and exits with 1.
func badInput(t *testing.T) {
	before := rome.Everything(t)
	command := milan.PeerCommand(t)
	with := func(replace ...string) []string {
		args := slices.Clone(command)
		for i := 0; i < len(replace); i += 2 {
			args[slices.Index(args, replace[i])+1] = replace[i+1]
		}
		return args
	}
	other := "11111111-2222-4333-8444-555555555555"
	for _, bad := range []struct {
		name  string
		args  []string
		words string // one of these must be result
	}{
		{"wrong token", with("--auth-token", strings.Repeat("0", 128)), "token"},
		{"empty token", with("--auth-token", ""), "token"},
		{"malformed URL", with("--auth-url", "milan"), "https://"},
		{"own cluster ID", with("--cluster-id", rome.ID(t)), "own"},
		{"another cluster's ID", with("--cluster-id", other), other},
		{"name not DNS-1123", with("out-of-band", "Milan_1"), "Milan_1"},
		{"name taken by another cluster", with("--cluster-id", other), "milan"},
		{"no such cluster", []string{"peer", "naples"}, "naples"},
		{"unpeer no such cluster", []string{"unpeer", "out-of-band", "naples"}, "naples"},
		{"unknown context", []string{"status", "--context", "nowhere"}, "nowhere"},
		{"unreachable API", []string{"status", "--server", "https://127.0.0.1:1"}, "127.0.0.1:1"},
		{"unknown value", []string{"install", "--set", "nosuch.value=1"}, "nosuch"},
		{"bad CIDR", []string{"install", "--pod-cidr", "10.0.0/8"}, "10.0.0/8"},
		{"CIDR without the pods", []string{"install", "--pod-cidr", "192.168.0.0/24"}, "192.168.0.0/24"},
		{"installed by another release", []string{"install", "-n", "other"}, "liqo"},
		{"status of an unknown peer", []string{"status", "peer", "naples"}, "naples"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			result := rome.TryLiqoctl(bad.args...)
			if result.Code != 1 || !strings.Contains(result.Out+result.Err, bad.words) {
				t.Errorf("want exit code 1 and the word %q: %s", bad.words, result)
			}
			if extra := inventory.Added(before, rome.Everything(t)); len(extra) > 0 {
				t.Errorf("it left %v", extra)
			}
		})
	}
}

// providerUnreachable cuts the consumer off from the provider and mends it.
func providerUnreachable(t *testing.T) {
	clusters.NeedsPlayground(t, "faults")
	start := time.Now()
	stopped := make(chan struct{})
	go func() { // takes seconds: the API server waits for its last requests
		defer close(stopped)
		clusters.Do(t, "component", "stop", milan.Name, "kube-apiserver")
	}()
	env.Eventually(t, env.Hang, "the API server of milan is down", func() (string, bool) {
		result := milan.TryKubectl("", "get", "--raw", "/livez", "--request-timeout=1s")
		return result.String(), result.Code != 0
	})
	clusters.Measure("provider's API server: stop asked for to no answer", "%.1f s", time.Since(start).Seconds())
	took := env.Eventually(t, env.Hang, "the virtual node is not Ready", func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		status, why := env.Readiness(node)
		return string(status) + " " + why, status == corev1.ConditionFalse
	})
	clusters.Measure("provider's API server silent to node NotReady", "%.1f s", took.Seconds())
	<-stopped
	clusters.Do(t, "component", "start", milan.Name, "kube-apiserver")
	env.Eventually(t, env.Hang, "the API server of milan is back", func() (string, bool) {
		result := milan.TryKubectl("", "get", "--raw", "/readyz", "--request-timeout=5s")
		return result.String(), result.Code == 0
	})
	clusters.Measure("provider's API server back to node Ready", "%.1f s", rome.NodeReady(t, milan).Seconds())
	rome.WantColumns(t, milan, "Established None Established Established")
}

func bidirectional(t *testing.T) {
	milan.Peer(t, rome)
	rome.WantColumns(t, milan, "Established Established Established Established")
	milan.WantColumns(t, rome, "Established Established Established Established")
}

// reverse: after a cluster uses another, that one uses it in turn with one documented command, without a token, if the first allows it.
func reverse(t *testing.T) {
	rome.Peer(t, milan)
	name := milan.Foreign(t, rome).Name
	allow := func(incoming string) {
		rome.Kubectl(t, "patch", "foreigncluster", rome.Foreign(t, milan).Name, "--type=merge", "-p", `{"spec":{"incomingPeeringEnabled":"`+incoming+`"}}`)
	}
	offered := func(want bool) {
		t.Helper()
		env.Eventually(t, env.Hang, fmt.Sprintf("rome is offered to milan: %v", want), func() (string, bool) {
			url := milan.Foreign(t, rome).Spec.ForeignAuthURL
			return url, want == (url != "")
		})
	}
	allow("No")
	offered(false)
	if result := milan.TryLiqoctl("peer", name); result.Code == 0 || !strings.Contains(result.Err, "does not offer to be used in turn") {
		t.Errorf("peer with a cluster that refuses: %s", result)
	}
	allow("Auto")
	offered(true)
	start := time.Now()
	milan.Liqoctl(t, "peer", name)
	milan.NodeReady(t, rome)
	clusters.Measure("reverse peering to node Ready", "%.1f s", time.Since(start).Seconds())
	rome.WantColumns(t, milan, "Established Established Established Established")
	milan.WantColumns(t, rome, "Established Established Established Established")
	milan.Liqoctl(t, "unpeer", name)
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
	milan.Liqoctl(t, "peer", name) // again, and then the other order
	milan.NodeReady(t, rome)
	rome.Liqoctl(t, "unpeer", rome.Foreign(t, milan).Name)
	milan.WantColumns(t, rome, "Established None Established Established")
	milan.Liqoctl(t, "unpeer", name)
	milan.WantColumns(t, rome, "None None None Established") // rome is registered, and may come back
}

func uninstallRefuses(t *testing.T) {
	result := rome.TryLiqoctl("uninstall")
	if result.Code != 1 || !strings.Contains(result.Out+result.Err, "milan") {
		t.Errorf("want a refusal that names milan: %s", result)
	}
	rome.Liqoctl(t, "status")
}

// unpeerLeavesNothing takes a bidirectional peering down, in either order.
func unpeerLeavesNothing(t *testing.T) {
	for _, pair := range [][2]*env.Cluster{{rome, milan}, {milan, rome}} {
		first, second := pair[0], pair[1]
		env.Peered(t, first, second)
		env.Peered(t, second, first)
		result := first.Liqoctl(t, "unpeer", "out-of-band", second.Name)
		if !strings.Contains(result.Out+result.Err, "unpeer") {
			t.Errorf("want a hint that the other side is still peered: %s", result)
		}
		first.WantColumns(t, second, "None Established Established Established")
		second.WantColumns(t, first, "Established None Established Established")
		second.Liqoctl(t, "unpeer", "out-of-band", first.Name)
		for _, c := range pair {
			env.Settled(t, c)
			networkGone(t, c)
		}
		env.Eventually(t, env.Hang, "no ForeignCluster is left", func() (string, bool) {
			return rome.Columns(t, milan) + "; " + milan.Columns(t, rome), rome.Foreign(t, milan) == nil && milan.Foreign(t, rome) == nil
		})
	}
}

// tokens: the condition distinguishes empty, wrong and revoked tokens.
func tokens(t *testing.T) {
	before := rome.Everything(t)
	// The command refuses a wrong token, so the objects are written by hand, as GitOps would.
	url := milan.PeerCommand(t)
	good := url[slices.Index(url, "--auth-token")+1]
	fingerprint := good[strings.LastIndex(good, "."):] // of the provider's key, with the dot before it
	manifest := func(token string) string {
		secret, err := json.Marshal(token)
		if err != nil {
			t.Fatal(err)
		}
		return `{"apiVersion":"v1","kind":"List","items":[
			{"apiVersion":"v1","kind":"Secret","metadata":{"name":"remote-token-` + milan.ID(t) + `","namespace":"liqo","labels":{"` +
			labels.ClusterID + `":"` + milan.ID(t) + `","` + labels.AuthToken + `":""}},"stringData":{"token":` + string(secret) + `}},
			{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"milan"},"spec":{"clusterIdentity":{"clusterID":"` +
			milan.ID(t) + `","clusterName":"milan"},"outgoingPeeringEnabled":"Yes","foreignAuthUrl":"` + url[slices.Index(url, "--auth-url")+1] + `"}}]}`
	}
	for _, c := range []struct {
		token string
		want  discovery.PeeringConditionStatus
	}{
		{"", discovery.StatusEmptyDenied},
		{strings.Repeat("0", 64), discovery.StatusError},
		{strings.Repeat("0", 64) + fingerprint, discovery.StatusDenied},
		{good, discovery.StatusEstablished},
	} {
		if result := rome.TryKubectl(manifest(c.token), "apply", "-f", "-"); result.Code != 0 {
			t.Fatal(result)
		}
		env.Eventually(t, env.Hang, "authentication is "+string(c.want), func() (string, bool) {
			have := env.PeeringCondition(rome.Foreign(t, milan), discovery.AuthenticationStatus)
			if c.token != "" && strings.Contains(have.Message, c.token) {
				t.Fatal("the condition shows the token")
			}
			return string(have.Status) + " " + have.Message, have.Status == c.want
		})
	}
	rome.NodeReady(t, milan)
	// The provider's administrator ends it, and withdraws the tokens, or the consumer would be back within a moment: its identity is worth
	// nothing as soon as the API server has received the deletion.
	token, _, own := identity(t, rome, milan)
	milan.Liqoctl(t, "rotate", "token")
	milan.Liqoctl(t, "unpeer", "out-of-band", rome.Name, "--force")
	env.Eventually(t, env.Hang, "the revoked identity is refused", func() (string, bool) {
		status, text := call(t, milan, token, "GET", "/apis/sharing.liqo.io/v1alpha1/namespaces/"+own+"/resourceslices", "")
		return strconv.Itoa(status) + " " + text, status == 401 || status == 403
	})
	unpeer := []string{"unpeer", "out-of-band", milan.Name}
	if !*long { // otherwise the consumer waits half a minute for a provider that refuses it
		unpeer = append(unpeer, "--force")
	}
	rome.Liqoctl(t, unpeer...)
	rome.NothingNew(t, before, env.Hang)
}

// idle: two peered clusters come to rest, in which they write nothing but leases. Reviews are no writes: a process that serves metrics
// asks for them when it is scraped, like any kubelet.
func idle(t *testing.T) {
	clusters.NeedsPlayground(t, "audit logs")
	rome.Peer(t, milan)
	milan.Peer(t, rome)
	during := 20 * time.Second
	if *long {
		during = time.Minute
	}
	writeNothing(t, during)
}

// writeNothing waits until neither cluster writes anything for a time.
func writeNothing(t *testing.T, during time.Duration) {
	t.Helper()
	last := time.Now()
	env.Eventually(t, env.Hang+3*during, fmt.Sprintf("both clusters write nothing for %v", during), func() (string, bool) {
		<-time.After(time.Until(last.Add(during))) // this time is what is measured
		var writes []string
		quiet := last
		for _, c := range both() {
			for _, call := range c.Calls(t, last, time.Time{}) {
				if call.Writes() && call.ObjectRef.Resource != "leases" && !call.Reviews() {
					writes = append(writes, c.Name+": "+call.String())
					if call.StageTimestamp.After(quiet) {
						quiet = call.StageTimestamp
					}
				}
			}
		}
		last = quiet.Add(time.Microsecond) // the resolution of audit logs
		return strings.Join(writes, "\n            "), len(writes) == 0
	})
}

// purge leaves the clusters as they were before the installation.
func purge(t *testing.T) {
	eachAlone(t, func(t *testing.T, c *env.Cluster) {
		clusters.Measure("uninstall --purge "+c.Name, "%.1f s", c.Liqoctl(t, "uninstall", "--purge").Took.Seconds())
		c.NothingOfLiqo(t, "")
		if before := fresh[c]; before != nil {
			c.NothingNew(t, before, env.Hang)
		}
	})
}

// sameName: a cluster that is a peer already is refused under another name.
func sameName(t *testing.T) {
	command := milan.PeerCommand(t)
	rome.Peer(t, milan)
	// The same cluster under another name is refused.
	args := slices.Clone(command)
	args[2] = "milan-again"
	if result := rome.TryLiqoctl(args...); result.Code != 1 || !strings.Contains(result.Out+result.Err, "milan") {
		t.Errorf("want a refusal that names the ForeignCluster milan: %s", result)
	}
	if result := rome.TryLiqoctl("unpeer", "out-of-band", milan.Name); result.Code != 0 {
		t.Error(result)
	}
}

// reinstalledConsumer: the consumer is installed anew with its old ID, and so with another key.
func reinstalledConsumer(t *testing.T) {
	clusters.NeedsPlayground(t, "faults")
	rome.Peer(t, milan)
	id := rome.ID(t)
	clusters.Do(t, "component", "stop", milan.Name, "kube-apiserver")
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name, "--force")
	clusters.Do(t, "component", "start", milan.Name, "kube-apiserver")
	env.Healthy(t, milan)
	rome.Liqoctl(t, "uninstall", "--purge")
	rome.Liqoctl(
		t, "install", "--cluster-name", rome.Name, "--cluster-labels", "topology.liqo.io/region="+rome.Name, "--set",
		"discovery.config.clusterIDOverride="+id,
	)
	if have := rome.ID(t); have != id {
		t.Fatalf("cluster ID %s, want %s", have, id)
	}
	result := rome.TryLiqoctl(append(milan.PeerCommand(t), "--timeout", "15s")...)
	if result.Code != 1 || !strings.Contains(result.Out+result.Err, "another key") {
		t.Errorf("want a refusal because of the other key: %s", result)
	}
	milan.Liqoctl(t, "unpeer", "out-of-band", rome.Name, "--timeout", "30s")
	rome.NodeReady(t, milan)
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	env.Eventually(t, env.Hang, "no ForeignCluster is left in milan", func() (string, bool) {
		fc := milan.Foreign(t, rome)
		return "there is one", fc == nil
	})
}
