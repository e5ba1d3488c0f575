// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
)

// besidePort is where a host beside beta is asked. TCP and UDP; HTTP is the next one.
const besidePort = 7300

// mappedAddresses: what the IPMappings of beta stand for is reached by their addresses in beta's external network, by the peers they are for
// and as long as they are there. A pod has no mapping: it is reached anyway.
func mappedAddresses(t *testing.T) {
	serving(t, env.Router(), besidePort)
	fromAlpha := see(t, alpha, beta)
	id := see(t, beta, alpha).Spec.ClusterIdentity.ClusterID
	ip, err := netip.ParseAddr(beta.Kubectl(t, "-n", env.Namespace, "get", "service", "server", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		t.Fatal(err)
	}
	// The router is a host in the network of beta's nodes, and is no part of the cluster.
	host, deleteHost := mapAddress(t, beta, "beside", beta.NodeCIDR.Masked().Addr().Next())
	node, deleteNode := mapAddress(t, beta, "node", beta.Nodes[0].Address)
	service, deleteService := mapAddress(t, beta, "service", ip, id)
	beside, onNode, behind := mappedFor(t, fromAlpha, host), mappedFor(t, fromAlpha, node), mappedFor(t, fromAlpha, service)

	any := netip.Addr{}
	pods := serversOf(t, alpha)
	reached(t, inside(t, pods[0]), beside, besidePort)
	reached(t, inside(t, pods[0]), behind, env.EchoPort)
	for _, client := range pods {
		from := inside(t, client)
		for _, args := range [][]string{
			{"http", at(beside, besidePort+1), "--bytes", "1000000", "--timeout", "20s"},
			{"udp", at(beside, besidePort), "--bytes", "1"},
			{"udp", at(beside, besidePort), "--bytes", "5000"},
		} {
			// Nobody out there has a way to alpha's pods, so the host hears one of beta's nodes.
			if a, err := ask(t, from, args...); err != nil {
				t.Error(err)
			} else if source, err := netip.ParseAddr(a.From); err != nil || !beta.NodeCIDR.Contains(source) {
				t.Errorf("from %s, %v: the host saw %q, want a node of beta, in %s", from.Name, args, a.From, beta.NodeCIDR)
			}
		}
		must(t, from, any, "http", at(onNode, env.HostPort+1), "--bytes", "1000000", "--timeout", "20s")
		must(t, from, any, "http", at(behind, env.EchoPort+1), "--bytes", "1000000", "--timeout", "20s")
		must(t, from, any, "udp", at(behind, env.EchoPort), "--bytes", "1000")
		must(t, client.Node.Net(), any, "http", at(beside, besidePort+1))
	}
	stranger, fromGamma := inside(t, serversOf(t, gamma)[0]), see(t, gamma, beta)
	must(t, stranger, any, "udp", at(mappedFor(t, fromGamma, host), besidePort), "--bytes", "1000")
	notForGamma, err := netip.ParseAddr(service.Status.ExternalAddress)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := ask(t, stranger, "http", at(valid(t)(fromGamma.Mapped(notForGamma)), env.EchoPort+1), "--timeout", "500ms"); err == nil {
		t.Errorf("gamma reaches what is mapped for alpha only: %+v", a)
	}
	sample(t, alpha, beta) // what is for pods is not to be remembered with the rest

	deleteHost()
	env.Eventually(t, repaired, "the address of a mapping that was deleted is silent", func() (string, bool) {
		for _, args := range [][]string{{"http", at(beside, besidePort+1)}, {"udp", at(beside, besidePort)}} {
			if a, err := ask(t, inside(t, pods[0]), append(args, "--timeout", "300ms")...); err == nil {
				return fmt.Sprintf("%s: %+v", args[0], a), false
			}
		}
		return "", true
	})
	must(t, inside(t, pods[0]), any, "http", at(behind, env.EchoPort+1))
	deleteNode()
	deleteService()
	podIsNotMapped(t)
	sample(t, alpha, beta)
}

// podIsNotMapped asks for a mapping of a pod, and hears that it needs none.
func podIsNotMapped(t *testing.T) {
	t.Helper()
	pod := serversOf(t, beta)[0].Address
	mapping, remove := newMapping(t, beta, "pod", pod)
	defer remove()
	env.Eventually(t, 20*time.Second, "the mapping of a pod is refused", func() (string, bool) {
		ready := readyOf(t, beta, mapping)
		return fmt.Sprintf("%+v", ready), ready.Reason == network.ReasonAddressInvalid && strings.Contains(ready.Message, "without a mapping")
	})
	if mapping.Status.ExternalAddress != "" {
		t.Errorf("pod %s has the address %s all the same", pod, mapping.Status.ExternalAddress)
	}
}

// serving starts a server at a place until the end of the test.
func serving(t *testing.T, at env.Place, port int) {
	t.Helper()
	cmd, _ := begin(t, at, "serve", "--port", strconv.Itoa(port))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
}

// newMapping makes an IPMapping for the peers with the IDs, for all if there are none. It goes with the test, or before.
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
	remove() // of a run that was ended
	if err := c.API.Create(t.Context(), mapping); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	return mapping, remove
}

// mapAddress is newMapping, and waits for the address.
func mapAddress(t *testing.T, c *env.Cluster, name string, target netip.Addr, ids ...string) (*network.IPMapping, func()) {
	t.Helper()
	mapping, remove := newMapping(t, c, name, target, ids...)
	env.Eventually(t, 20*time.Second, "mapping "+name+" of "+c.Name+" has its address", func() (string, bool) {
		ready := readyOf(t, c, mapping)
		return fmt.Sprintf("%+v", ready), ready.Status == metav1.ConditionTrue
	})
	return mapping, remove
}

// readyOf reads a mapping anew and returns its condition.
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

// mappedFor is the address that a peer uses: what the two clusters have agreed makes of it, and the mapping has to say the same.
func mappedFor(t *testing.T, view env.View, mapping *network.IPMapping) netip.Addr {
	t.Helper()
	external, err := netip.ParseAddr(mapping.Status.ExternalAddress)
	if err != nil {
		t.Fatal(err)
	}
	address := valid(t)(view.Mapped(external))
	id := see(t, view.There, view.Here).Spec.ClusterIdentity.ClusterID
	if said := mapping.Status.PeerAddresses[id]; said != address.String() {
		t.Errorf("mapping %s says that %s uses %q, want %s", mapping.Name, view.Here.Name, said, address)
	}
	return address
}

// reached waits for the first answer at an address that was just mapped.
func reached(t *testing.T, from env.Place, address netip.Addr, port int) {
	t.Helper()
	took := env.Eventually(t, repaired, fmt.Sprintf("%s is reached from %s", address, from.Name), func() (string, bool) {
		a, err := ask(t, from, "http", at(address, port+1), "--timeout", "500ms")
		return fmt.Sprint(a, err), err == nil
	})
	clusters.Measure(fmt.Sprintf("IPMapping has its address to first answer at port %d", port), "%.1f s", took.Seconds())
}
