// SPDX-License-Identifier: Apache-2.0

package several

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/traffic"
)

// app is a namespace that a cluster offloads, with one server in each of some clusters and one Service of all of them.
type app struct {
	name     string
	consumer *env.Cluster
	in       []*env.Cluster
}

const server = `
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: server
    image: localhost/traffic:dev
    imagePullPolicy: Never
    args: [serve]
    readinessProbe: {tcpSocket: {port: 7001}, periodSeconds: 1}
`

const service = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports:
  - {name: tcp, port: 7000, protocol: TCP}
  - {name: udp, port: 7000, protocol: UDP}
  - {name: http, port: 7001, protocol: TCP}
`

// deploy creates the namespace and offloads it, with a server in the consumer and in each provider. It waits until all are Ready, and deletes
// the namespace at the end of the test.
func deploy(t *testing.T, consumer *env.Cluster, name string, providers ...*env.Cluster) app {
	t.Helper()
	a := app{name, consumer, append([]*env.Cluster{consumer}, providers...)}
	a.offload(t)
	a.apply(t, service)
	for _, c := range a.in {
		a.start(t, "web-"+c.Name, c)
	}
	a.ready(t, a.in...)
	return a
}

// offload creates the namespace and offloads it, until the end of the test.
func (a app) offload(t *testing.T, flags ...string) {
	t.Helper()
	remove := func() {
		if a.consumer.TryKubectl("", "get", "namespace", a.name).Code == 0 {
			ended := a.consumer.TryLiqoctl("unoffload", "namespace", a.name) // the test may have done it
			deleted := a.consumer.TryKubectl("", "delete", "namespace", a.name, "--timeout=120s")
			t.Logf("unoffload of %s took %.1f s, its deletion %.1f s (%s)", a.name, ended.Took.Seconds(), deleted.Took.Seconds(), deleted.Err)
		}
	}
	remove() // left by an interrupted run
	a.consumer.Kubectl(t, "create", "namespace", a.name)
	t.Cleanup(remove)
	a.consumer.Liqoctl(t, append([]string{"offload", "namespace", a.name}, flags...)...)
}

// apply applies a manifest in the consumer's namespace.
func (a app) apply(t *testing.T, manifest string) {
	t.Helper()
	if r := a.consumer.TryKubectl(manifest, "-n", a.name, "apply", "-f", "-"); r.Code != 0 {
		t.Fatal(r)
	}
}

// start creates a server that can only run in one cluster.
func (a app) start(t *testing.T, pod string, c *env.Cluster) {
	t.Helper()
	a.apply(t, fmt.Sprintf(server, pod, a.node(c)))
}

// node is what the consumer calls the node on which pods run in a cluster.
func (a app) node(c *env.Cluster) string {
	if c == a.consumer {
		return c.Nodes[len(c.Nodes)-1].Name // the last one: with a worker, the first one takes no pods
	}
	return "liqo-" + c.Name
}

// ready waits until the servers of some clusters are Ready in the consumer.
func (a app) ready(t *testing.T, in ...*env.Cluster) {
	t.Helper()
	for _, c := range in {
		a.podReady(t, "web-"+c.Name)
	}
}

func (a app) podReady(t *testing.T, name string) {
	t.Helper()
	env.Eventually(t, env.Hang, fmt.Sprintf("pod %s of %s is Ready", name, a.name), func() (string, bool) {
		r := a.consumer.TryKubectl(
			"", "-n", a.name, "get", "pod", name, "-o", `jsonpath={.status.phase} {.status.reason} {.status.conditions[?(@.type=="Ready")].status}`,
		)
		return r.Out + r.Err, strings.HasPrefix(r.Out, "Running ") && strings.HasSuffix(r.Out, " True")
	})
}

// namespace is the name of the namespace in a cluster.
func (a app) namespace(t *testing.T, c *env.Cluster) string {
	t.Helper()
	if c == a.consumer {
		return a.name
	}
	return a.consumer.Kubectl(t, "-n", a.name, "get", "namespaceoffloading", "offloading", "-o", "jsonpath={.status.remoteNamespaceName}")
}

// pod is the server in a cluster.
func (a app) pod(t *testing.T, c *env.Cluster) env.Pod {
	t.Helper()
	var found env.Pod
	env.Eventually(t, env.Hang, fmt.Sprintf("a server of %s is Ready in %s", a.name, c.Name), func() (string, bool) {
		all, err := c.Pods(a.namespace(t, c), map[string]string{"app": "web"})
		i := slices.IndexFunc(all, func(pod env.Pod) bool { return pod.Name == "web-"+c.Name })
		if i >= 0 {
			found = all[i]
		}
		return fmt.Sprint(all, err), i >= 0
	})
	return found
}

// at is the network of the server in a cluster.
func (a app) at(t *testing.T, c *env.Cluster) netns.Place {
	t.Helper()
	place, err := a.pod(t, c).Net()
	if err != nil {
		t.Fatal(err)
	}
	return place
}

// service returns a field of the Service in a cluster.
func (a app) service(t *testing.T, c *env.Cluster, field string) (value string) {
	t.Helper()
	env.Eventually(t, env.Hang, "the Service of "+a.name+" is in "+c.Name, func() (string, bool) {
		r := c.TryKubectl("", "-n", a.namespace(t, c), "get", "service", "web", "-o", "jsonpath={"+field+"}")
		value = r.Out
		return r.Out + r.Err, r.Code == 0 && r.Out != ""
	})
	return value
}

// endpoint is the address under which a cluster reaches the server of another one: that of its EndpointSlice. It is invalid if there is none.
func (a app) endpoint(t *testing.T, c, of *env.Cluster) netip.Addr {
	t.Helper()
	slicesThere, err := c.Objects("discovery.k8s.io/v1/EndpointSlice", a.namespace(t, c))
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range slicesThere {
		endpoints, _ := slice.Object["endpoints"].([]any)
		for _, one := range endpoints {
			endpoint, _ := one.(map[string]any)
			text, _ := fields.At(endpoint, "addresses.0").(string)
			if address, err := netip.ParseAddr(text); err == nil &&
				fields.At(endpoint, "targetRef.name") == "web-"+of.Name && fields.At(endpoint, "conditions.ready") == true {
				return address
			}
		}
	}
	return netip.Addr{}
}

// answers waits until the servers of exactly these clusters answer at an address: each of them has, and many requests in a row were answered by
// one of them.
func answers(t *testing.T, from netns.Place, address string, in ...*env.Cluster) {
	t.Helper()
	want := map[string]bool{}
	for _, c := range in {
		want["web-"+c.Name] = true
	}
	// The chance that one of four servers is missed is less than one in ten million.
	const inARow = 60
	env.Eventually(t, env.Hang, fmt.Sprintf("at %s, exactly these answer %s: %v", address, from.Name, slices.Sorted(maps.Keys(want))), func() (string, bool) {
		seen := map[string]bool{}
		for range inARow {
			a, err := check(from, "http", address, "--timeout", "2s")
			if err != nil {
				return err.Error(), false
			}
			if seen[a.Server] = true; !want[a.Server] {
				return a.Server + " answers", false
			}
			if len(seen) == len(want) && len(want) == 1 {
				break
			}
		}
		return fmt.Sprint(slices.Sorted(maps.Keys(seen))), maps.Equal(seen, want)
	})
}

// answersEverywhere checks the Service from every cluster of the application.
func (a app) answersEverywhere(t *testing.T, from, in []*env.Cluster) {
	t.Helper()
	for _, c := range from {
		answers(t, a.at(t, c), a.service(t, c, ".spec.clusterIP")+":7001", in...)
	}
}

// program sends traffic.
func program() string { return filepath.Join(clusters.Bin, "traffic") }

// check asks once.
func check(from netns.Place, protocol, address string, flags ...string) (a traffic.Answer, err error) {
	r := from.Try(program(), append([]string{"check", protocol, address}, flags...)...)
	if r.Code != 0 {
		return a, fmt.Errorf("from %s: %s", from.Name, strings.TrimSpace(r.Err))
	}
	return a, json.Unmarshal([]byte(r.Out), &a)
}

// must asks and returns the answer.
func must(t *testing.T, from netns.Place, protocol, address string, flags ...string) traffic.Answer {
	t.Helper()
	a, err := check(from, protocol, address, flags...)
	if err != nil {
		t.Error(err)
	}
	return a
}

// state is what must not change of an application in a cluster: its objects by their UIDs, the restarts of its server, and the addresses of endpoints.
func (a app) state(t *testing.T, c *env.Cluster, endpoints ...*env.Cluster) string {
	t.Helper()
	pod := a.pod(t, c)
	text := fmt.Sprintf("namespace and Service %s, pod %s with %d restarts at %s",
		c.Kubectl(t, "get", "namespace/"+a.namespace(t, c), "-o", "jsonpath={.metadata.uid}")+
			" "+a.service(t, c, ".metadata.uid")+" "+a.service(t, c, ".spec.clusterIP"),
		pod.UID, pod.Restarts, pod.Address)
	for _, of := range endpoints {
		text += fmt.Sprintf(", endpoint in %s %s", of.Name, a.endpoint(t, c, of))
	}
	return text
}
