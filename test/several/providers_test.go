// SPDX-License-Identifier: Apache-2.0

package several

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// application runs one application here and in two providers. Its Service answers from all three clusters, in all three.
func application(t *testing.T) {
	peered(t, star()...)
	for _, c := range clusters.Clusters {
		if c.PodCIDR != rome.PodCIDR || c.ServiceCIDR != rome.ServiceCIDR {
			t.Errorf("%s has the networks %s and %s, rome has %s and %s: the tests want the same", c.Name, c.PodCIDR, c.ServiceCIDR, rome.PodCIDR, rome.ServiceCIDR)
		}
	}
	a := deploy(t, rome, "one", milan, turin)
	for _, c := range a.in {
		if pods, err := c.Objects("v1/Pod", a.namespace(t, c)); err != nil || c != rome && len(pods) != 1 {
			t.Errorf("%s runs %d pods of the application (%v), want its own", c.Name, len(pods), err)
		}
	}
	a.answersEverywhere(t, a.in, a.in)

	// The address that rome shows of each pod works there.
	for _, c := range []*env.Cluster{milan, turin} {
		ip := rome.Kubectl(t, "-n", a.name, "get", "pod", "web-"+c.Name, "-o", "jsonpath={.status.podIP}")
		if got := must(t, a.at(t, rome), "http", ip+":7001", "--bytes", "1000000", "--timeout", "20s"); got.Server != "web-"+c.Name {
			t.Errorf("%s, the address of web-%s, is answered by %s", ip, c.Name, got.Server)
		}
	}
}

// fromProviderToProvider sends traffic from a pod in one provider to a pod in the other one, while the providers are not peered: it passes rome,
// at the ports of the Service only.
func fromProviderToProvider(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "across", milan, turin)
	a.answersEverywhere(t, []*env.Cluster{milan, turin}, a.in)
	for _, pair := range [][2]*env.Cluster{{milan, turin}, {turin, milan}} {
		a.throughConsumer(t, pair[0], pair[1])
	}
}

// throughConsumer checks every protocol of the Service from the server in one provider to the one in another.
func (a app) throughConsumer(t *testing.T, from, to *env.Cluster) {
	t.Helper()
	address := a.endpoint(t, from, to)
	external := prefix(t, view(t, from, a.consumer).Spec.RemoteNATExternalCIDR, string(view(t, from, a.consumer).Spec.RemoteExternalCIDR))
	if !external.Contains(address) {
		t.Fatalf("%s reaches the server in %s under %s, want an address of the external network of %s, %s", from.Name, to.Name, address, a.consumer.Name, external)
	}
	source := prefix(t, view(t, to, a.consumer).Spec.RemoteNATExternalCIDR, string(view(t, to, a.consumer).Spec.RemoteExternalCIDR))
	for _, args := range [][]string{
		{"http", traffic.Endpoint(address, 7001), "--bytes", "1"},
		{"http", traffic.Endpoint(address, 7001), "--bytes", "10000000", "--timeout", "30s"},
		{"udp", traffic.Endpoint(address, 7000), "--bytes", "1000"},
		{"udp", traffic.Endpoint(address, 7000), "--bytes", "5000"},
	} {
		got := must(t, a.at(t, from), args[0], args[1], args[2:]...)
		if seen, err := netip.ParseAddr(got.From); err != nil || !source.Contains(seen) {
			t.Errorf("from %s, %v: the server in %s saw %q, want an address of %s", from.Name, args, to.Name, got.From, source)
		}
		if got.Server != "" && got.Server != "web-"+to.Name {
			t.Errorf("from %s, %v: %s answers", from.Name, args, got.Server)
		}
	}
	if got, err := check(a.at(t, from), "udp", traffic.Endpoint(address, 7001), "--timeout", "500ms"); err == nil {
		t.Errorf("a port that the Service does not have answers: %+v", got)
	}
}

// peeredProviders peers the two providers with each other: their pods then reach each other directly, each under its own address, and the Service
// works as before, also after the providers unpeer.
func peeredProviders(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "peered", milan, turin)
	a.answersEverywhere(t, a.in, a.in)
	before := a.state(t, milan, rome, turin) + "\n" + a.state(t, turin, rome, milan)
	peered(t, append(star(), use{milan, turin})...)
	var direct string
	for _, pair := range [][2]*env.Cluster{{milan, turin}, {turin, milan}} {
		from, to := a.pod(t, pair[0]), a.pod(t, pair[1])
		address, err := view(t, pair[0], pair[1]).Pod(to.Address)
		source, err2 := view(t, pair[0], pair[1]).Source(from.Address)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		direct = traffic.Endpoint(address, 7001)
		got := must(t, a.at(t, pair[0]), "http", direct, "--bytes", "10000000", "--timeout", "30s")
		if got.Server != "web-"+pair[1].Name || got.From != source.String() {
			t.Errorf("from %s to %s at %s: %+v, want an answer to %s", pair[0].Name, pair[1].Name, direct, got, source)
		}
		a.throughConsumer(t, pair[0], pair[1])
	}
	a.answersEverywhere(t, a.in, a.in)
	peered(t, star()...)
	env.Eventually(t, env.Hang, "turin does not reach pods of milan after they unpeered", func() (string, bool) {
		got, err := check(a.at(t, turin), "http", direct, "--timeout", "500ms")
		return fmt.Sprintf("%+v", got), err != nil
	})
	a.answersEverywhere(t, a.in, a.in)
	if after := a.state(t, milan, rome, turin) + "\n" + a.state(t, turin, rome, milan); after != before {
		t.Errorf("the application before:\n%s\nand after the providers peered and unpeered:\n%s", before, after)
	}
}

// nodePorts: a client outside of all clusters reaches all servers at the node port of the Service in each cluster.
func nodePorts(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "ports", milan, turin)
	for _, c := range a.in {
		port := a.service(t, c, `.spec.ports[?(@.name=="http")].nodePort`)
		answers(t, netns.Router(), c.Nodes[0].Address.String()+":"+port, a.in...)
	}
}

// jobsUseTheAPIServer runs a Job in each provider that reads its own pod from the API server of rome, and ends.
func jobsUseTheAPIServer(t *testing.T) {
	peered(t, star()...)
	a := app{"jobs", rome, clusters.Clusters}
	a.offload(t)
	rome.Kubectl(t, "-n", a.name, "create", "rolebinding", "reads", "--clusterrole=view", "--serviceaccount="+a.name+":default")
	for _, c := range []*env.Cluster{milan, turin} {
		a.apply(t, fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: reads-%s}
spec:
  backoffLimit: 20
  template:
    metadata: {labels: {app: reads}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %s}
      restartPolicy: Never
      containers:
      - name: main
        image: %s
        imagePullPolicy: Never
        command: [sh, -c]
        args:
        - |
          cd /var/run/secrets/kubernetes.io/serviceaccount
          curl -fsS --max-time 20 --cacert ca.crt -H "Authorization: Bearer $(cat token)" \
            https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat namespace)/pods/$HOSTNAME | grep '"nodeName": "%[2]s"'
`, c.Name, a.node(c), env.ToolsImage))
	}
	for _, c := range []*env.Cluster{milan, turin} {
		name := "job/reads-" + c.Name
		rome.Kubectl(t, "-n", a.name, "wait", "--for=condition=complete", name, "--timeout=120s")
		if logs := rome.Kubectl(t, "-n", a.name, "logs", name); !strings.Contains(logs, a.node(c)) {
			t.Errorf("the Job in %s printed %q, want the name of its node in rome", c.Name, logs)
		}
	}
}

// unpeerOne unpeers milan while a server in turin sends requests to the one in rome. Nothing of turin changes, and what was in milan leaves the Service.
func unpeerOne(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "leaves", milan, turin)
	a.answersEverywhere(t, a.in, a.in)
	before, local := a.state(t, turin, rome), rome.Kubectl(t, "-n", a.name, "get", "pod", "web-turin", "-o", "jsonpath={.metadata.uid}")
	stop := requests(t, a.at(t, turin), traffic.Endpoint(a.endpoint(t, turin, rome), 7001))
	rome.Liqoctl(t, "unpeer", "out-of-band", milan.Name)
	milan.WantColumns(t, rome, "absent")
	sent, failed := stop()
	clusters.Measure("requests from the other provider while one is unpeered", "%d, %d failed", sent, len(failed))
	if len(failed) > 0 {
		t.Errorf("%d of %d requests between turin and rome failed: %s", len(failed), sent, failed[0])
	}
	if after := a.state(t, turin, rome); after != before {
		t.Errorf("in turin, before: %s\nand after milan was unpeered: %s", before, after)
	}
	if now := rome.Kubectl(t, "-n", a.name, "get", "pod", "web-turin", "-o", "jsonpath={.metadata.uid}"); now != local {
		t.Error("the pod of turin was replaced in rome")
	}
	a.answersEverywhere(t, []*env.Cluster{rome, turin}, []*env.Cluster{rome, turin})
	for _, c := range []*env.Cluster{rome, turin} {
		if address := a.endpoint(t, c, milan); address.IsValid() {
			t.Errorf("%s has the endpoint %s of milan", c.Name, address)
		}
	}
	// Kubernetes deletes pods of a node that is gone after 40 seconds at the earliest.
	env.Eventually(t, outage, "rome has no pod of milan, milan no namespace of rome", func() (string, bool) {
		here := rome.Kubectl(t, "-n", a.name, "get", "pods", "-o", "name")
		there := milan.Kubectl(t, "get", "namespaces", "-o", "name")
		return here + "\n" + there, !strings.Contains(here, "web-milan") && !strings.Contains(there, "/"+a.name+"-")
	})
}

// requests sends requests from a place, one after the other, until the function that it returns is called.
func requests(t *testing.T, from netns.Place, address string) (stop func() (sent int, failed []string)) {
	t.Helper()
	end := make(chan struct{})
	var running sync.WaitGroup
	sent, failed := 0, []string(nil)
	running.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			sent++
			if _, err := check(from, "http", address); err != nil {
				failed = append(failed, err.Error())
			}
		}
	})
	var once sync.Once
	ended := func() { once.Do(func() { close(end); running.Wait() }) }
	t.Cleanup(ended)
	return func() (int, []string) { ended(); return sent, failed }
}

// oneIsDead cuts milan off. Pods start in turin and objects reach it as before, at once and after milan has been found to be silent. When milan
// returns, its pods are as they were.
func oneIsDead(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "dead", milan, turin)
	a.answersEverywhere(t, a.in, a.in)
	before := a.state(t, milan) + "\n" + a.state(t, turin, rome)
	a.progress(t, "both providers answer")

	clusters.Do(t, "fault", "partition", rome.Name, milan.Name)
	healed := false
	heal := func() {
		if !healed {
			healed = true
			clusters.Do(t, "fault", "heal", rome.Name, milan.Name)
		}
	}
	t.Cleanup(heal)
	for i := range 10 { // the silent provider has something to do
		a.start(t, fmt.Sprintf("waits-%d", i), milan)
	}
	a.progress(t, "one provider just became silent")
	env.Eventually(t, env.Hang, "the virtual node of milan is not Ready", func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		status, why := env.Readiness(node)
		return why, status != "True"
	})
	a.progress(t, "one provider is known to be silent")
	start := time.Now()
	a.answersEverywhere(t, []*env.Cluster{rome, turin}, []*env.Cluster{rome, turin})
	clusters.Measure("Service without the endpoint of a provider whose node is not Ready", "%.1f s", time.Since(start).Seconds())

	heal()
	rome.NodeReady(t, milan)
	for i := range 10 {
		a.podReady(t, fmt.Sprintf("waits-%d", i))
		rome.Kubectl(t, "-n", a.name, "delete", "pod", fmt.Sprintf("waits-%d", i), "--wait=false")
	}
	env.Eventually(t, env.Hang, "only the three servers are left", func() (string, bool) {
		left := rome.Kubectl(t, "-n", a.name, "get", "pods", "-o", "name")
		return left, len(strings.Fields(left)) == len(a.in)
	})
	a.answersEverywhere(t, a.in, a.in)
	if after := a.state(t, milan) + "\n" + a.state(t, turin, rome); after != before {
		t.Errorf("the application before:\n%s\nand after milan was silent:\n%s", before, after)
	}
}

// progress creates pods in turin and ConfigMaps, one after the other, and changes them. It records how long a pod takes to become Ready and a ConfigMap
// to arrive, and fails only if one never does.
func (a app) progress(t *testing.T, when string) {
	t.Helper()
	const rounds = 5
	var pods, maps []time.Duration
	for i := range rounds {
		name := fmt.Sprintf("progress-%d", i)
		start := time.Now()
		a.start(t, name, turin)
		a.podReady(t, name)
		pods = append(pods, time.Since(start))
		value := fmt.Sprint(when, i)
		start = time.Now()
		a.apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: progress}, data: {value: %q}}", value))
		env.Eventually(t, env.Hang, "the ConfigMap is in turin", func() (string, bool) {
			found, err := turin.Object("v1/ConfigMap", a.namespace(t, turin), "progress")
			return fmt.Sprint(err), err == nil && fields.At(found.Object, "data.value") == value
		})
		maps = append(maps, time.Since(start))
		rome.Kubectl(t, "-n", a.name, "delete", "pod", name, "--timeout=60s")
	}
	median := func(all []time.Duration) float64 { return slices.Sorted(slices.Values(all))[len(all)/2].Seconds() }
	clusters.Measure(when+": in the other one", "pod Ready after %.1f s, ConfigMap there after %.2f s (medians of %d)", median(pods), median(maps), rounds)
}

func view(t *testing.T, here, there *env.Cluster) networks.View {
	t.Helper()
	view, err := networks.See(here, there)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// prefix reads the remapped network, or the original one if it is not remapped.
func prefix(t *testing.T, remapped, original string) netip.Prefix {
	t.Helper()
	if remapped == "" || remapped == "None" {
		remapped = original
	}
	network, err := netip.ParsePrefix(remapped)
	if err != nil {
		t.Fatal(err)
	}
	return network
}
