// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/test/env"
)

// inBand: everything between the clusters is closed but the port of milan's gateway, which rome may open. Rome uses milan all the same, with logs, exec,
// usage and events, and nothing is left afterwards.
func inBand(t *testing.T) {
	clusters.NeedsPlayground(t, "links that are closed")
	before := objectsOfBoth(t)
	closeAllBut(t, "udp/"+gatewayPort(t, milan))
	peerInBand(t, rome, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
	if columns := strings.Fields(rome.Kubectl(t, "get", "foreignclusters", "milan", "--no-headers")); len(columns) < 2 || columns[1] != "InBand" {
		t.Errorf("the columns of milan are %q", columns)
	}
	inBandPod(t)
	if result := rome.TryLiqoctl(
		"peer", "out-of-band", "milan", "--auth-url", "https://192.0.2.1", "--cluster-id", milan.ID(t), "--auth-token", "a.b",
	); result.Code == 0 || !strings.Contains(result.Err, "InBand") {
		t.Errorf("the same peering, out-of-band: %s", result)
	}
	unpeerInBand(t, rome, milan)
	nothingElse(t)
	noLeftovers(t, before)
}

// inBandIdle is how long an in-band peering without use is observed.
const inBandIdle = 20 * time.Second

// inBandLong: the same over one TCP port, in both directions, with renewed identities, without a write while nothing happens, ended in each order.
func inBandLong(t *testing.T) {
	clusters.NeedsPlayground(t, "links that are closed")
	milan.Install(
		t, "--set", "gateway.config.streamPort=443", "--set", "auth.tls=false", "--set", "auth.service.type=ClusterIP", "--set",
		"networking.config.traffic=offloaded",
	)
	rome.Install(t, "--set", "networking.config.traffic=offloaded")
	t.Cleanup(func() {
		for _, c := range both() {
			c.Install(t, "--reset-values")
		}
	})
	before := objectsOfBoth(t)
	closeAllBut(t, "tcp/443")
	peerInBand(t, rome, milan)
	inBandPod(t)
	t.Run("renewal", func(t *testing.T) { renewed(t, rome, milan) })

	for name, ends := range map[string]func(){
		"both at once, after a quiet time": func() {
			writeNothing(t, inBandIdle)
			unpeerInBand(t, rome, milan)
		},
		"from the provider":   func() { unpeerInBand(t, milan, rome) },
		"consumer, then both": func() { rome.Liqoctl(t, "unpeer", "milan"); unpeerInBand(t, rome, milan) },
		"provider, then both": func() { milan.Liqoctl(t, "unpeer", "rome"); unpeerInBand(t, rome, milan) },
		"one after the other, and the other way round again": func() {
			rome.Liqoctl(t, "unpeer", "milan")
			rome.WantColumns(t, milan, "None Established Established Established")
			milan.Liqoctl(t, "unpeer", "rome")
			milan.WantColumns(t, rome, "None None Established Established")
			rome.Liqoctl(t, "peer", "milan") // the tunnel is still there
			rome.NodeReady(t, milan)
			unpeerInBand(t, milan, rome)
		},
	} {
		t.Run(name, func(t *testing.T) {
			peerInBand(t, rome, milan)
			peerInBand(t, rome, milan, "--bidirectional")
			milan.NodeReady(t, rome)
			rome.WantColumns(t, milan, "Established Established Established Established")
			renewed(t, milan, rome)
			ends()
			noLeftovers(t, before)
		})
	}
	t.Run("the documented reverse command", func(t *testing.T) {
		peerInBand(t, rome, milan)
		start := time.Now()
		milan.Liqoctl(t, "peer", "rome")
		milan.NodeReady(t, rome)
		clusters.Measure("in-band, reverse peering to node Ready", "%.1f s", time.Since(start).Seconds())
		unpeerInBand(t, rome, milan)
		noLeftovers(t, before)
	})
	nothingElse(t)
}

// invited: milan prints one command, which is run in rome. Milan needs no further step, and of it rome reaches one UDP port.
func invited(t *testing.T) {
	clusters.NeedsPlayground(t, "links that are closed")
	before := objectsOfBoth(t)
	closeAllBut(t, "udp/"+gatewayPort(t, milan))
	command := func() []string {
		t.Helper()
		words := strings.Fields(strings.TrimSpace(milan.Liqoctl(t, "generate", "peer-command", "--in-band", "--for", "rome", "--only-command").Out))
		if len(words) != 10 || strings.Join(words[:4], " ") != "liqoctl peer in-band milan" {
			t.Fatalf("the command of milan is %q", words)
		}
		return words[1:]
	}
	words := command()
	start := time.Now()
	rome.Liqoctl(t, words...)
	rome.NodeReady(t, milan)
	clusters.Measure("in-band by invitation, from the command to node Ready", "%.1f s", time.Since(start).Seconds())
	env.Eventually(t, env.Hang, "rome reaches milan through the tunnel", func() (string, bool) {
		spec := rome.Foreign(t, milan).Spec
		return spec.ForeignProxyURL, spec.ForeignProxyURL != ""
	})
	env.Eventually(t, 3*env.Hang, "the invitation, which was used, is gone", func() (string, bool) {
		r := milan.TryKubectl("", "get", "foreignclusters", "-l", "net.liqo.io/invitation", "-o", "name")
		return r.String(), r.Code == 0 && strings.TrimSpace(r.Out) == ""
	})
	rome.WantColumns(t, milan, "Established None Established Established")
	milan.WantColumns(t, rome, "None Established Established Established")
	inBandPod(t)
	renewed(t, rome, milan)
	milan.Liqoctl(t, "peer", milan.Foreign(t, rome).Name) // the other direction
	milan.NodeReady(t, rome)
	milan.Liqoctl(t, "unpeer", milan.Foreign(t, rome).Name)
	rome.Liqoctl(t, "unpeer", "milan") // the tunnel stays, and the peering can start again
	rome.WantColumns(t, milan, "None None Established Established")
	rome.Liqoctl(t, "peer", "milan")
	rome.NodeReady(t, milan)
	rome.Liqoctl(t, "unpeer", "in-band", "milan")
	milan.Liqoctl(t, "unpeer", "in-band", milan.Foreign(t, rome).Name)
	if result := rome.TryLiqoctl(append(words, "--timeout", "10s")...); result.Code == 0 {
		t.Errorf("the same command, once more: %s", result)
	}
	rome.Liqoctl(t, "unpeer", "in-band", "milan", "--force")
	withdrawn := command()
	milan.Liqoctl(t, "unpeer", "in-band", strings.TrimPrefix(
		strings.TrimSpace(milan.Kubectl(t, "get", "foreignclusters", "-l", "net.liqo.io/invitation", "-o", "name")),
		"foreigncluster.discovery.liqo.io/",
	), "--force")
	if result := rome.TryLiqoctl(append(withdrawn, "--timeout", "10s")...); result.Code == 0 {
		t.Errorf("with an invitation that was withdrawn: %s", result)
	}
	rome.Liqoctl(t, "unpeer", "in-band", "milan", "--force")
	nothingElse(t)
	// Which tokens were issued and used outlives peerings, so that none is used twice.
	milan.Kubectl(t, "-n", "liqo", "delete", "secret/liqo-peer-tokens")
	milan.Kubectl(t, "-n", "liqo", "delete", "configmaps", "-l", "auth.liqo.io/spent-token")
	noLeftovers(t, before)
}

// reverseInside: milan uses rome, which uses milan out-of-band, although of rome it reaches nothing but the tunnel that rome has opened.
func reverseInside(t *testing.T) {
	clusters.NeedsPlayground(t, "links that are closed")
	before := objectsOfBoth(t)
	closeAllBut(t, "udp/"+gatewayPort(t, milan), "tcp/443", "tcp/6443") // rome reaches authentication service and API server of milan
	rome.Peer(t, milan)
	rome.WantColumns(t, milan, "Established None Established Established")
	name := milan.Foreign(t, rome).Name
	start := time.Now()
	milan.Liqoctl(t, "peer", name)
	milan.NodeReady(t, rome)
	clusters.Measure("out-of-band, reverse peering through the tunnel to node Ready", "%.1f s", time.Since(start).Seconds())
	if spec := milan.Foreign(t, rome).Spec; spec.PeeringType != discovery.OutOfBand || spec.ForeignAuthURL != discovery.AuthURLInside {
		t.Errorf("milan reaches rome %s, at %s", spec.PeeringType, spec.ForeignAuthURL)
	}
	renewed(t, milan, rome)
	rome.Liqoctl(t, "unpeer", rome.Foreign(t, milan).Name) // the other direction goes on
	milan.WantColumns(t, rome, "Established None Established Established")
	renewed(t, milan, rome)
	milan.Liqoctl(t, "unpeer", name)
	milan.WantColumns(t, rome, "None None None Established") // rome is registered, and may come back
	env.Unpeered(t, rome, milan)
	noLeftovers(t, before)
}

// gatewayPort is the port at which the gateway of a cluster is reached from outside.
func gatewayPort(t *testing.T, c *env.Cluster) string {
	t.Helper()
	words := strings.Fields(c.Kubectl(
		t, "-n", "liqo", "get", "service", "liqo-gateway", "-o", "jsonpath={.spec.type} {.spec.ports[0].port} {.spec.ports[0].nodePort}",
	))
	if len(words) == 3 && words[0] == "NodePort" {
		return words[2]
	}
	return words[1]
}

// closeAllBut closes the link between the clusters, except for ports that rome opens at milan, until the test ends.
func closeAllBut(t *testing.T, ports ...string) {
	t.Helper()
	t.Cleanup(func() { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) })
	clusters.Do(t, append([]string{"fault", "allow", rome.Name, milan.Name, "--one-way"}, ports...)...)
}

// nothingElse checks that no packet has passed between the clusters beside the open port.
func nothingElse(t *testing.T) {
	t.Helper()
	result := clusters.Playground("fault", "counters", rome.Name, milan.Name, "-o", "json")
	var counters []struct {
		From, To, Verdict, What string
		Packets                 uint64
	}
	if err := json.Unmarshal([]byte(result.Out), &counters); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	through := uint64(0)
	for _, one := range counters {
		switch {
		case one.Verdict != "passed":
		case one.What != "anything else":
			through += one.Packets
		case one.Packets > 0:
			t.Errorf("%d packets from %s to %s passed beside the open port", one.Packets, one.From, one.To)
		}
	}
	if through == 0 {
		t.Error("no packet passed at the open port, so the count of others proves nothing")
	}
}

func peerInBand(t *testing.T, consumer, provider *env.Cluster, flags ...string) {
	t.Helper()
	start := time.Now()
	consumer.Liqoctl(t, append([]string{"peer", "in-band", "--remote-kubeconfig", provider.Kubeconfig()}, flags...)...)
	consumer.NodeReady(t, provider)
	clusters.Measure(strings.TrimSpace("in-band, from the command to node Ready "+strings.Join(flags, " ")), "%.1f s", time.Since(start).Seconds())
}

func unpeerInBand(t *testing.T, here, there *env.Cluster) {
	t.Helper()
	here.Liqoctl(t, "unpeer", "in-band", "--remote-kubeconfig", there.Kubeconfig())
}

// objectsOfBoth are the objects of both clusters.
func objectsOfBoth(t *testing.T) map[*env.Cluster][]string {
	t.Helper()
	all := map[*env.Cluster][]string{}
	for _, c := range both() {
		env.Settled(t, c)
		all[c] = c.Everything(t)
	}
	return all
}

func noLeftovers(t *testing.T, before map[*env.Cluster][]string) {
	t.Helper()
	for _, c := range both() {
		env.Settled(t, c)
		networkGone(t, c)
		c.NothingNew(t, before[c], env.Hang)
	}
}

// inBandPod runs a pod of rome in milan, and looks into it as a user does.
func inBandPod(t *testing.T) {
	t.Helper()
	const namespace = "in-band"
	rome.Kubectl(t, "create", "namespace", namespace)
	defer func() {
		// The controller manager reads milan through the tunnel; this machine has no way there.
		if result := rome.TryLiqoctl("unoffload", "namespace", namespace); result.Code != 0 ||
			!strings.Contains(result.Out+result.Err, "To be deleted in cluster milan") {
			t.Errorf("unoffload without --force: %s", result)
			rome.Liqoctl(t, "unoffload", "namespace", namespace, "--force")
		}
		rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s")
	}()
	rome.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
	apply(t, namespace, `
apiVersion: v1
kind: Pod
metadata: {name: works}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "echo it works; sleep infinity"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: "playground.local/nobodys:1", imagePullPolicy: Never}]}
`)
	rome.Kubectl(t, "-n", namespace, "wait", "pod/works", "--for=condition=Ready", "--timeout=180s")
	for what, row := range map[string]struct {
		args []string
		want string
	}{
		"logs":   {[]string{"-n", namespace, "logs", "works"}, "it works"},
		"exec":   {[]string{"-n", namespace, "exec", "works", "--", "sh", "-c", "echo $((6*7))"}, "42"},
		"events": {[]string{"-n", namespace, "get", "events"}, "pull policy of Never"},
		"usage": {
			[]string{"get", "--raw", "/api/v1/nodes/liqo-milan/proxy/metrics/resource"},
			`pod_memory_working_set_bytes{namespace="` + namespace + `",pod="works"}`,
		},
	} {
		env.Eventually(t, env.Hang, what+" through the tunnel", func() (string, bool) {
			r := rome.TryKubectl("", row.args...)
			return r.String(), r.Code == 0 && strings.Contains(r.Out, row.want)
		})
	}
}

// renewed moves the time of renewal into the past, and waits for another identity.
func renewed(t *testing.T, consumer, provider *env.Cluster) {
	t.Helper()
	fc := consumer.Foreign(t, provider)
	namespace := fc.Status.TenantNamespace.Local
	name := strings.TrimSpace(consumer.Kubectl(t, "-n", namespace, "get", "secrets", "-l", "discovery.liqo.io/cluster-id="+provider.ID(t), "-o", "name"))
	old := base64.StdEncoding.EncodeToString([]byte("2020-01-01T00:00:00Z"))
	consumer.Kubectl(t, "-n", namespace, "patch", name, "--type=merge", "-p", `{"data":{"token-renew-at":"`+old+`"}}`)
	consumer.Kubectl(t, "annotate", "foreigncluster", fc.Name, "--overwrite", fmt.Sprintf("e2e/renewed=%d", time.Now().UnixNano()))
	env.Eventually(t, env.Hang, "the identity of "+consumer.Name+" is renewed", func() (string, bool) {
		r := consumer.TryKubectl("", "-n", namespace, "get", name, "-o", "jsonpath={.data.token-renew-at}")
		return r.String(), r.Code == 0 && r.Out != "" && r.Out != old
	})
	if status := env.PeeringCondition(consumer.Foreign(t, provider), discovery.AuthenticationStatus).Status; status != discovery.StatusEstablished {
		t.Errorf("after the renewal, authentication is %s", status)
	}
}
