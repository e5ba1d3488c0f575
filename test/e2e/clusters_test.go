// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
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
)

// TestClusters is the life of an installation in the order a user meets it. Each step starts from what the
// one before left, so a step that fails ends the test.
func TestClusters(t *testing.T) {
	fresh := map[*cluster][]string{}
	for _, c := range []*cluster{rome, milan} {
		if *keep {
			unpeered(t)
			c.try("uninstall", "--purge")
		}
		fresh[c] = c.objects(t)
	}
	steps := []struct {
		name string
		run  func(*testing.T)
	}{
		{"nothing installed", nothingInstalled},
		{"install", install},
		{"peer", peerAndColumns},
		{"hostile peer", hostilePeer},
		{"bad input", badInput},
		{"provider unreachable", providerUnreachable},
		{"gateway away", gatewayAway},
		{"bidirectional", bidirectional},
		{"uninstall refuses", uninstallRefuses},
		{"unpeer", unpeerLeavesNothing},
		{"offloading", offloads},
		{"speed", speed},
		{"tokens", tokens},
		{"same name", sameName},
		{"reinstalled consumer", reinstalledConsumer},
		{"authentication service restarts", authPodDeleted},
		{"dead provider", deadProvider},
		{"faults at each step", faultsAtEachStep},
		{"external network", externalNetwork},
		{"idle", idle},
		{"rights", rights},
	}
	for _, step := range steps {
		began := time.Now()
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
		measure("step "+step.name, "%.1f s", time.Since(began).Seconds())
	}
	t.Run("purge", func(t *testing.T) { purge(t, fresh) })
}

func nothingInstalled(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"generate", "peer-command"}, {"uninstall"}} {
		if said := rome.try(args...); said.code != 1 || !strings.Contains(said.out+said.err, "install") {
			t.Errorf("want exit code 1 and a hint to install: %s", said)
		}
	}
}

func install(t *testing.T) {
	for _, c := range []*cluster{rome, milan} {
		said := c.liqoctl(t, "install", "--cluster-name", c.Name, "--cluster-labels", "topology.liqo.io/region="+c.Name)
		measure("install "+c.Name, "%.1f s", said.took.Seconds())
		if said.took > time.Minute {
			t.Errorf("install took %v, want at most a minute", said.took)
		}
		c.liqoctl(t, "status")
		c.networkWorkloads(t, true)
		before := c.kubectl(t, "-n", "liqo", "get", "configmap/liqo-clusterid-configmap", "secret/auth-token", "-o", "jsonpath={.items[*].data}")
		again := c.liqoctl(t, "install", "--cluster-name", c.Name, "--cluster-labels", "topology.liqo.io/region="+c.Name)
		measure("install "+c.Name+" again", "%.1f s", again.took.Seconds())
		if after := c.kubectl(t, "-n", "liqo", "get", "configmap/liqo-clusterid-configmap", "secret/auth-token", "-o", "jsonpath={.items[*].data}"); after != before {
			t.Errorf("a second install changed identity or token of %s", c.Name)
		}
	}
}

func (c *cluster) wantColumns(t *testing.T, other *cluster, want string) {
	t.Helper()
	eventually(t, 20*time.Second, c.Name+" shows of "+other.Name+": "+want, func() (string, bool) {
		have := c.columns(t, other)
		return have, have == want
	})
}

func peerAndColumns(t *testing.T) {
	rome.peer(t, milan)
	rome.wantColumns(t, milan, "Established None Established Established")
	milan.wantColumns(t, rome, "None Established Established Established")
	header := strings.Fields(strings.Split(rome.kubectl(t, "get", "foreignclusters"), "\n")[0])
	if want := strings.Fields("NAME TYPE OUTGOING PEERING INCOMING PEERING NETWORKING AUTHENTICATION AGE"); !slices.Equal(header, want) {
		t.Errorf("columns %v, want %v", header, want)
	}
	node, err := rome.node(milan)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		labels.Type: labels.TypeVirtualNode, "kubernetes.io/role": "agent", "topology.liqo.io/region": "milan",
		"kubernetes.io/os": "linux", "kubernetes.io/arch": milan.kubectl(t, "get", "node", "milan-worker", "-o", "jsonpath={.status.nodeInfo.architecture}"),
		labels.RemoteClusterID: milan.clusterID(t), "kubernetes.io/hostname": "liqo-milan",
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
	if line := rome.kubectl(t, "get", "node", "liqo-milan", "--no-headers"); !strings.Contains(line, " agent ") || !strings.Contains(line, " Ready ") {
		t.Errorf("kubectl get node shows %q", line)
	}
	rome.liqoctl(t, "status", "peer", "milan")
	rome.sharesLess(t)
}

// sharesLess changes the percentage while everything runs, and looks at the node.
func (c *cluster) sharesLess(t *testing.T) {
	t.Helper()
	cpu := func() resource.Quantity {
		node, err := rome.node(milan)
		if err != nil {
			t.Fatal(err)
		}
		return node.Status.Allocatable[corev1.ResourceCPU]
	}
	before := cpu()
	milan.kubectl(t, "-n", "liqo", "patch", "configmap", "liqo-resource-sharing", "--type=merge", "-p", `{"data":{"percentage":"45"}}`)
	took := eventually(t, 10*time.Second, "half the share gives half the capacity", func() (string, bool) {
		have := cpu()
		return have.String(), have.MilliValue() < before.MilliValue()*6/10
	})
	measure("change of the sharing percentage to the node", "%.2f s", took.Seconds())
	if took > 2*time.Second {
		t.Errorf("the change took %v to arrive, want at most 2 s", took)
	}
	milan.kubectl(t, "-n", "liqo", "patch", "configmap", "liqo-resource-sharing", "--type=merge", "-p", `{"data":{"percentage":"90"}}`)
	eventually(t, 10*time.Second, "the old share is back", func() (string, bool) {
		have := cpu()
		return have.String(), have.MilliValue() > before.MilliValue()*9/10
	})
}

func (c *cluster) clusterID(t testing.TB) string {
	t.Helper()
	return c.kubectl(t, "-n", "liqo", "get", "configmap", "liqo-clusterid-configmap", "-o", "jsonpath={.data.CLUSTER_ID}")
}

// badInput changes nothing, says why, and ends with 1.
func badInput(t *testing.T) {
	before := rome.objects(t)
	command := milan.peerCommand(t)
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
		words string // one of these must be said
	}{
		{"wrong token", with("--auth-token", strings.Repeat("0", 128)), "token"},
		{"empty token", with("--auth-token", ""), "token"},
		{"malformed URL", with("--auth-url", "milan"), "https://"},
		{"own cluster ID", with("--cluster-id", rome.clusterID(t)), "own"},
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
			said := rome.try(bad.args...)
			if said.code != 1 || !strings.Contains(said.out+said.err, bad.words) {
				t.Errorf("want exit code 1 and the word %q: %s", bad.words, said)
			}
			if extra := env.Added(before, rome.objects(t)); len(extra) > 0 {
				t.Errorf("it left %v", extra)
			}
		})
	}
}

// providerUnreachable cuts the consumer off from the provider and mends it.
func providerUnreachable(t *testing.T) {
	began := time.Now()
	stopped := make(chan struct{})
	go func() { // takes seconds: the API server waits for its last requests
		defer close(stopped)
		must(t, "component", "stop", milan.Name, "kube-apiserver")
	}()
	eventually(t, 40*time.Second, "the API server of milan is down", func() (string, bool) {
		said := milan.tryKubectl("", "get", "--raw", "/livez", "--request-timeout=1s")
		return said.String(), said.code != 0
	})
	measure("provider's API server: stop asked for to no answer", "%.1f s", time.Since(began).Seconds())
	took := eventually(t, 40*time.Second, "the virtual node is not Ready", func() (string, bool) {
		node, err := rome.node(milan)
		if err != nil {
			return err.Error(), false
		}
		status, why := readiness(node)
		return string(status) + " " + why, status == corev1.ConditionFalse
	})
	measure("provider's API server silent to node NotReady", "%.1f s", took.Seconds())
	<-stopped
	must(t, "component", "start", milan.Name, "kube-apiserver")
	eventually(t, 2*time.Minute, "the API server of milan is back", func() (string, bool) {
		said := milan.tryKubectl("", "get", "--raw", "/readyz", "--request-timeout=5s")
		return said.String(), said.code == 0
	})
	measure("provider's API server back to node Ready", "%.1f s", rome.nodeReady(t, milan, 30*time.Second).Seconds())
	rome.wantColumns(t, milan, "Established None Established Established")
}

func bidirectional(t *testing.T) {
	milan.peer(t, rome)
	rome.wantColumns(t, milan, "Established Established Established Established")
	milan.wantColumns(t, rome, "Established Established Established Established")
}

func uninstallRefuses(t *testing.T) {
	said := rome.try("uninstall")
	if said.code != 1 || !strings.Contains(said.out+said.err, "milan") {
		t.Errorf("want a refusal that names milan: %s", said)
	}
	rome.liqoctl(t, "status")
}

// unpeerLeavesNothing takes a bidirectional peering down, in either order.
func unpeerLeavesNothing(t *testing.T) {
	for _, pair := range [][2]*cluster{{rome, milan}, {milan, rome}} {
		first, second := pair[0], pair[1]
		if first.foreign(t, second) == nil {
			first.peer(t, second)
			second.peer(t, first)
		}
		said := first.liqoctl(t, "unpeer", "out-of-band", second.Name)
		if !strings.Contains(said.out+said.err, "unpeer") {
			t.Errorf("want a hint that the other side is still peered: %s", said)
		}
		first.wantColumns(t, second, "None Established Established Established")
		second.wantColumns(t, first, "Established None Established Established")
		second.liqoctl(t, "unpeer", "out-of-band", first.Name)
		for _, c := range pair {
			settled(t, c)
			networkGone(t, c)
		}
		eventually(t, 10*time.Second, "no ForeignCluster is left", func() (string, bool) {
			return rome.columns(t, milan) + "; " + milan.columns(t, rome), rome.foreign(t, milan) == nil && milan.foreign(t, rome) == nil
		})
	}
}

// tokens: empty, wrong and revoked are told apart in the condition.
func tokens(t *testing.T) {
	before := rome.objects(t)
	// The command refuses a wrong token, so the objects are written by hand, as GitOps would.
	url := milan.peerCommand(t)
	manifest := func(token string) string {
		secret, err := json.Marshal(token)
		if err != nil {
			t.Fatal(err)
		}
		return `{"apiVersion":"v1","kind":"List","items":[
			{"apiVersion":"v1","kind":"Secret","metadata":{"name":"remote-token-` + milan.clusterID(t) + `","namespace":"liqo","labels":{"` + labels.ClusterID + `":"` + milan.clusterID(t) + `","` + labels.AuthToken + `":""}},"stringData":{"token":` + string(secret) + `}},
			{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"ForeignCluster","metadata":{"name":"milan"},"spec":{"clusterIdentity":{"clusterID":"` + milan.clusterID(t) + `","clusterName":"milan"},"outgoingPeeringEnabled":"Yes","foreignAuthUrl":"` + url[slices.Index(url, "--auth-url")+1] + `"}}]}`
	}
	for _, c := range []struct {
		token string
		want  discovery.PeeringConditionStatus
	}{{"", discovery.StatusEmptyDenied}, {strings.Repeat("0", 128), discovery.StatusDenied}, {url[slices.Index(url, "--auth-token")+1], discovery.StatusEstablished}} {
		if said := rome.tryKubectl(manifest(c.token), "apply", "-f", "-"); said.code != 0 {
			t.Fatal(said)
		}
		eventually(t, 20*time.Second, "authentication is "+string(c.want), func() (string, bool) {
			have := condition(rome.foreign(t, milan), discovery.AuthenticationStatus)
			if c.token != "" && strings.Contains(have.Message, c.token) {
				t.Fatal("the condition shows the token")
			}
			return string(have.Status) + " " + have.Message, have.Status == c.want
		})
	}
	rome.nodeReady(t, milan, 20*time.Second)
	// The provider's administrator ends it, and changes the token, or the consumer would be back within a moment: its identity is worth
	// nothing as soon as the API server has heard of it.
	token, _, own := rome.identity(t, milan)
	milan.kubectl(t, "-n", "liqo", "patch", "secret", "auth-token", "--type=merge", "-p", `{"stringData":{"token":"`+strings.Repeat("5e", 64)+`"}}`)
	milan.liqoctl(t, "unpeer", "out-of-band", rome.Name, "--force")
	eventually(t, 2*time.Second, "the revoked identity is refused", func() (string, bool) {
		status, text := call(t, milan, token, "GET", "/apis/sharing.liqo.io/v1alpha1/namespaces/"+own+"/resourceslices", "")
		return strconv.Itoa(status) + " " + text, status == 401 || status == 403
	})
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
	rome.nothingNew(t, before, 30*time.Second)
}

// idle: two peered clusters write nothing but leases. Who asks a node for what its pods use is asked after in turn, as by any kubelet.
func idle(t *testing.T) {
	rome.peer(t, milan)
	milan.peer(t, rome)
	pause(10 * time.Second) // the last echoes of peering
	from := time.Now()
	const during = 60 * time.Second
	pause(during)
	for _, c := range []*cluster{rome, milan} {
		for _, call := range c.calls(t, from) {
			if call.writes() && call.resource != "leases" && !call.asks() {
				t.Errorf("%s, idle: %s", c.Name, call)
			}
		}
	}
	unpeered(t)
}

// purge leaves the clusters as they were before the installation.
func purge(t *testing.T, fresh map[*cluster][]string) {
	for c, before := range fresh {
		said := c.liqoctl(t, "uninstall", "--purge")
		measure("uninstall --purge "+c.Name, "%.1f s", said.took.Seconds())
		c.nothingNew(t, before, 60*time.Second)
	}
}

// sameName: another cluster of the same name is a peer of its own.
func sameName(t *testing.T) {
	command := milan.peerCommand(t)
	rome.peer(t, milan)
	// The same cluster under another name is refused.
	args := slices.Clone(command)
	args[2] = "milan-again"
	if said := rome.try(args...); said.code != 1 || !strings.Contains(said.out+said.err, "milan") {
		t.Errorf("want a refusal that names the ForeignCluster milan: %s", said)
	}
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
}

// reinstalledConsumer: the consumer is installed anew with its old ID, and so with another key.
func reinstalledConsumer(t *testing.T) {
	rome.peer(t, milan)
	id := rome.clusterID(t)
	must(t, "component", "stop", milan.Name, "kube-apiserver")
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name, "--force")
	must(t, "component", "start", milan.Name, "kube-apiserver")
	healthy(t, milan)
	rome.liqoctl(t, "uninstall", "--purge")
	rome.liqoctl(t, "install", "--cluster-name", rome.Name, "--cluster-labels", "topology.liqo.io/region="+rome.Name, "--set", "discovery.config.clusterIDOverride="+id)
	if have := rome.clusterID(t); have != id {
		t.Fatalf("cluster ID %s, want %s", have, id)
	}
	said := rome.try(append(milan.peerCommand(t), "--timeout", "15s")...)
	if said.code != 1 || !strings.Contains(said.out+said.err, "another key") {
		t.Errorf("want a refusal because of the other key: %s", said)
	}
	milan.liqoctl(t, "unpeer", "out-of-band", rome.Name, "--timeout", "30s")
	rome.nodeReady(t, milan, 60*time.Second)
	rome.liqoctl(t, "unpeer", "out-of-band", milan.Name)
	eventually(t, 30*time.Second, "no ForeignCluster is left in milan", func() (string, bool) {
		fc := milan.foreign(t, rome)
		return "there is one", fc == nil
	})
}
