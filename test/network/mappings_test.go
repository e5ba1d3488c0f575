// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// outsidePort is the port of the server on a host outside of beta: TCP and UDP, and HTTP on the next one.
const outsidePort = 7300

// mappedAddresses checks that peers reach the targets of beta's IPMappings under addresses of beta's external network: only the peers that
// the mapping lists, and only while it exists. A pod needs no mapping.
func mappedAddresses(t *testing.T) {
	serving(t, netns.Router(), outsidePort)
	fromAlpha := see(t, alpha, beta)
	id := see(t, beta, alpha).Spec.ClusterIdentity.ClusterID
	ip, err := netip.ParseAddr(beta.Kubectl(t, "-n", traffic.Namespace, "get", "service", "server", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		t.Fatal(err)
	}
	// The router is a host in the network of beta's nodes, and is no part of the cluster.
	host, deleteHost := mapAddress(t, beta, "outside", beta.NodeCIDR.Masked().Addr().Next())
	node, deleteNode := mapAddress(t, beta, "node", beta.Nodes[0].Address)
	service, deleteService := mapAddress(t, beta, "service", ip, id)
	outside, onNode, behind := mappedFor(t, fromAlpha, host), mappedFor(t, fromAlpha, node), mappedFor(t, fromAlpha, service)

	any := netip.Addr{}
	pods := traffic.AllServers(t, alpha)
	reached(t, inside(t, pods[0]), outside, outsidePort)
	reached(t, inside(t, pods[0]), behind, traffic.EchoPort)
	for _, client := range pods {
		from := inside(t, client)
		for _, args := range [][]string{
			{"http", traffic.Endpoint(outside, outsidePort+1), "--bytes", "1000000", "--timeout", "20s"},
			{"udp", traffic.Endpoint(outside, outsidePort), "--bytes", "1"},
			{"udp", traffic.Endpoint(outside, outsidePort), "--bytes", "5000"},
		} {
			// The host has no route to alpha's pods, so it must see the address of one of beta's nodes.
			if a, err := ask(t, from, args...); err != nil {
				t.Error(err)
			} else if source, err := netip.ParseAddr(a.From); err != nil || !beta.NodeCIDR.Contains(source) {
				t.Errorf("from %s, %v: the host saw %q, want a node of beta, in %s", from.Name, args, a.From, beta.NodeCIDR)
			}
		}
		must(t, from, any, "http", traffic.Endpoint(onNode, traffic.HostPort+1), "--bytes", "1000000", "--timeout", "20s")
		must(t, from, any, "http", traffic.Endpoint(behind, traffic.EchoPort+1), "--bytes", "1000000", "--timeout", "20s")
		must(t, from, any, "udp", traffic.Endpoint(behind, traffic.EchoPort), "--bytes", "1000")
		must(t, client.Node.Net(), any, "http", traffic.Endpoint(outside, outsidePort+1))
	}
	gammaPod, fromGamma := inside(t, traffic.AllServers(t, gamma)[0]), see(t, gamma, beta)
	must(t, gammaPod, any, "udp", traffic.Endpoint(mappedFor(t, fromGamma, host), outsidePort), "--bytes", "1000")
	notForGamma, err := netip.ParseAddr(service.Status.ExternalAddress)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := ask(t, gammaPod, "http", traffic.Endpoint(valid(t)(fromGamma.Mapped(notForGamma)), traffic.EchoPort+1), "--timeout", "500ms"); err == nil {
		t.Errorf("gamma reaches a target that is mapped for alpha only: %+v", a)
	}
	sample(t, alpha, beta) // the addresses of pods still work

	deleteHost()
	env.Eventually(t, outageBound, "the address of a deleted mapping does not answer", func() (string, bool) {
		for _, args := range [][]string{{"http", traffic.Endpoint(outside, outsidePort+1)}, {"udp", traffic.Endpoint(outside, outsidePort)}} {
			if a, err := ask(t, inside(t, pods[0]), append(args, "--timeout", "300ms")...); err == nil {
				return fmt.Sprintf("%s: %+v", args[0], a), false
			}
		}
		return "", true
	})
	must(t, inside(t, pods[0]), any, "http", traffic.Endpoint(behind, traffic.EchoPort+1))
	deleteNode()
	deleteService()
	podIsNotMapped(t)
	throughBeta(t)
	sample(t, alpha, beta)
}

// throughBeta checks that every pod of alpha reaches a pod of gamma through a mapping of beta, over each of beta's gateways, although the two clusters
// see each other's pods at other addresses as well.
func throughBeta(t *testing.T) {
	t.Helper()
	server := traffic.AllServers(t, gamma)[0]
	target := valid(t)(see(t, beta, gamma).Pod(server.Address))
	mapping, remove := mapAddress(t, beta, "third", target, see(t, beta, alpha).Spec.ClusterIdentity.ClusterID)
	defer remove()
	address := mappedFor(t, see(t, alpha, beta), mapping)
	view := see(t, gamma, beta)
	external, err := netip.ParsePrefix(cmp.Or(strings.ReplaceAll(view.Spec.RemoteNATExternalCIDR, network.NotRemapped, ""), string(view.Spec.RemoteExternalCIDR)))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]bool{}
	for _, client := range traffic.AllServers(t, alpha) {
		from := inside(t, client)
		reached(t, from, address, traffic.EchoPort)
		for range 10 {
			for _, args := range [][]string{
				{"http", traffic.Endpoint(address, traffic.EchoPort+1), "--bytes", "1000000", "--timeout", "20s"},
				{"udp", traffic.Endpoint(address, traffic.EchoPort), "--bytes", "5000"},
			} {
				a, err := ask(t, from, args...)
				source, _ := netip.ParseAddr(a.From) // of no network if it is invalid
				if err != nil || !external.Contains(source) {
					t.Errorf("from %s, %v: the pod of gamma saw %q (%v), want an address of beta's external network %s", from.Name, args, a.From, err, external)
				}
				sources[a.From] = true
			}
		}
	}
	clusters.Measure(t.Name()+": addresses of beta that the third cluster saw", "%d", len(sources))
}

// podIsNotMapped checks that a mapping of a pod is refused, because a pod needs none.
func podIsNotMapped(t *testing.T) {
	t.Helper()
	pod := traffic.AllServers(t, beta)[0].Address
	mapping, remove := newMapping(t, beta, "pod", pod)
	defer remove()
	env.Eventually(t, env.Hang, "the mapping of a pod is refused", func() (string, bool) {
		ready := readyOf(t, beta, mapping)
		return fmt.Sprintf("%+v", ready), ready.Reason == network.ReasonAddressInvalid && strings.Contains(ready.Message, "without a mapping")
	})
	if mapping.Status.ExternalAddress != "" {
		t.Errorf("pod %s has the mapped address %s", pod, mapping.Status.ExternalAddress)
	}
}

// serving starts a server at a place until the end of the test.
func serving(t *testing.T, at netns.Place, port int) {
	t.Helper()
	cmd, _ := traffic.Start(t, clusters, at, "serve", "--port", strconv.Itoa(port))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		_ = cmd.Wait()
	})
}

// newMapping creates an IPMapping for the peers with the IDs, or for all peers without an ID. It is deleted at the end of the test at the latest.
func newMapping(t *testing.T, c *env.Cluster, name string, target netip.Addr, ids ...string) (*network.IPMapping, func()) {
	t.Helper()
	mapping := &network.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: "tests-" + name},
		Spec:       network.IPMappingSpec{Address: target.String(), ClusterIDs: ids},
	}
	remove := func() {
		t.Helper()
		if err := client.IgnoreNotFound(c.API.Delete(context.Background(), mapping.DeepCopy())); err != nil {
			t.Error(err)
		}
	}
	remove() // left by an interrupted run
	if err := c.API.Create(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	return mapping, remove
}

// mapAddress creates an IPMapping and waits for its address.
func mapAddress(t *testing.T, c *env.Cluster, name string, target netip.Addr, ids ...string) (*network.IPMapping, func()) {
	t.Helper()
	mapping, remove := newMapping(t, c, name, target, ids...)
	env.Eventually(t, env.Hang, "mapping "+name+" of "+c.Name+" has its address", func() (string, bool) {
		ready := readyOf(t, c, mapping)
		return fmt.Sprintf("%+v", ready), ready.Status == metav1.ConditionTrue
	})
	return mapping, remove
}

// readyOf reads a mapping again and returns its condition Ready.
func readyOf(t *testing.T, c *env.Cluster, mapping *network.IPMapping) metav1.Condition {
	t.Helper()
	if err := c.API.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping); err != nil {
		t.Fatal(err)
	}
	if found := meta.FindStatusCondition(mapping.Status.Conditions, network.ConditionReady); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// mappedFor computes the address that a peer uses from the agreed networks, and checks that the mapping's status shows the same.
func mappedFor(t *testing.T, view networks.View, mapping *network.IPMapping) netip.Addr {
	t.Helper()
	external, err := netip.ParseAddr(mapping.Status.ExternalAddress)
	if err != nil {
		t.Fatal(err)
	}
	address := valid(t)(view.Mapped(external))
	id := see(t, view.There, view.Here).Spec.ClusterIdentity.ClusterID
	if shown := mapping.Status.PeerAddresses[id]; shown != address.String() {
		t.Errorf("mapping %s shows the address %[3]q for %[2]s, want %[4]s", mapping.Name, view.Here.Name, shown, address)
	}
	return address
}

// reached waits for the first answer at an address that was just mapped, and reports how long that took.
func reached(t *testing.T, from netns.Place, address netip.Addr, port int) {
	t.Helper()
	took := env.Eventually(t, outageBound, fmt.Sprintf("%s is reached from %s", address, from.Name), func() (string, bool) {
		a, err := ask(t, from, "http", traffic.Endpoint(address, port+1), "--timeout", "500ms")
		return fmt.Sprint(a, err), err == nil
	})
	clusters.Measure(fmt.Sprintf("IPMapping has its address to first answer at port %d", port), "%s", versus(took, repaired))
}
