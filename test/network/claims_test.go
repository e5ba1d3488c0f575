// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

var (
	// apart is where networks of peers are remapped to by default: no host has an address there.
	apart = netip.MustParsePrefix("242.0.0.0/8")
	// outsider is a host outside all clusters, such as a database. No value and no object names it.
	outsider = netip.MustParseAddr("10.140.9.10")
)

const (
	itsNetwork   = "10.140.9.8/30"
	largeNetwork = "10.128.0.0/10" // contains it
	// oneMinute is how long the peer changes its claim, once each second.
	oneMinute = time.Minute
	// fewest is how many requests a client must have sent in that time, of 20 a second: this machine may be busy.
	fewest = 800
)

// claimedAddresses: a host outside all clusters answers a pod and a node of beta. Gamma, a consumer of beta, claims the host's network as its own from the
// first moment, then a large network that contains it, and then changes the claim each second. No request to the host is lost, and none of its packets
// arrives at gamma's gateway.
func claimedAddresses(t *testing.T) {
	startOutsider(t)
	peer := claim(t, gamma, beta)
	lane := inside(t, gateway(t, gamma, 0))
	before := routes(t)
	atGateway := capture(t, lane, word())
	f := askOutsider(t)

	// First contact: there is no agreement that could stay in use.
	peer.withdraw(t)
	peer.announce(t, itsNetwork)
	peer.decided(t, network.ReasonAgreed)
	peer.remapped(t, itsNetwork)
	peer.withdraw(t)
	peer.announce(t, largeNetwork)
	peer.decided(t, network.ReasonNetworkTooLarge)
	if view, err := networks.See(beta, gamma); err == nil {
		t.Errorf("with %s claimed at first contact, beta has a tunnel endpoint with %s", largeNetwork, view.Spec.RemotePodCIDR)
	}

	// Later: the agreement is about another network.
	const agreed = "10.201.0.0/16"
	peer.withdraw(t)
	peer.announce(t, agreed)
	peer.decided(t, network.ReasonAgreed)
	peer.remapped(t, agreed)
	count := peer.keepChanging(t, agreed)
	if got := routes(t); got != before {
		t.Errorf("the nodes' routes to the host were\n%s\nand are\n%s", before, got)
	}
	f.stop()
	for which, n := range f.state() {
		clusters.Measure("claimed address: "+which.kind+" from "+which.from.Name, "%d requests, %d lost", n.Sent, n.Lost)
		if n.Lost > 0 || n.Sent < fewest {
			t.Errorf("%d of %d requests from %s to the host were lost (%s); want none, of at least %d", n.Lost, n.Sent, which.from.Name, n.Why, fewest)
		}
	}
	arrived := 0
	for _, packets := range atGateway() {
		if packets.To == outsider {
			arrived += packets.Frames
		}
	}
	clusters.Measure("claimed address: decisions on changed claims", "%s; %d packets for the host at gamma's gateway", count, arrived)
	if arrived > 0 {
		t.Errorf("%d packets for the host arrived at gamma's gateway", arrived)
	}
	if events := beta.Kubectl(
		t, "get", "events", "-A", "--field-selector", "reason="+network.ReasonNetworkChanged+",involvedObject.name="+gamma.Name, "-o", "name",
	); events == "" {
		t.Error("no event of beta's ForeignCluster of gamma names the change")
	}
	peer.wouldArrive(t, lane)
}

// startOutsider gives the host an address behind the router between the clusters, and a server.
func startOutsider(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		for _, own := range []netip.Prefix{c.PodCIDR, c.ServiceCIDR, c.NodeCIDR} {
			if own.Overlaps(netip.MustParsePrefix(largeNetwork)) {
				t.Fatalf("%s of cluster %s is in %s, so that claim proves nothing", own, c.Name, largeNetwork)
			}
		}
	}
	const name = "outsider"
	host, router, place := netns.Host(), netns.Router(), netns.Named(name)
	_ = host.Try("ip", "netns", "del", name) // left by an interrupted run
	host.Run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { host.Run(t, "ip", "netns", "del", name) })
	host.Run(t, "ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", name, "netns", "lpg-wan")
	gate := outsider.Prev()
	router.Run(t, "ip", "addr", "add", gate.String()+"/30", "dev", name)
	router.Run(t, "ip", "link", "set", name, "up")
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", outsider.String() + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", gate.String()},
	} {
		place.Run(t, "ip", args...)
	}
	server, _ := traffic.Start(t, clusters, place, "serve")
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have exited
		_ = server.Wait()
	})
}

// askOutsider sends the host 20 requests a second from a pod of beta, and as many from a node.
func askOutsider(t *testing.T) *flows {
	t.Helper()
	f := &flows{now: map[flow]counts{}, sources: map[*exec.Cmd]*env.Node{}}
	t.Cleanup(f.stop)
	pod, node := traffic.AllServers(t, beta)[0], beta.Nodes[len(beta.Nodes)-1]
	for kind, from := range map[string]struct {
		place netns.Place
		node  *env.Node
	}{"requests": {inside(t, pod), pod.Node}, "local": {node.Net(), node}} { // two kinds, because on a cluster of one node the flows would be the same
		must(t, from.place, netip.Addr{}, "http", traffic.Endpoint(outsider, traffic.EchoPort+1))
		f.client(t, from.place, kind, []string{"host=" + traffic.Endpoint(outsider, traffic.EchoPort)}, map[string]flow{"host": {from: from.node, to: from.node}})
	}
	return f
}

// routes are the ways of beta's nodes to the host.
func routes(t *testing.T) string {
	t.Helper()
	var all []string
	for _, node := range beta.Nodes {
		way, _, _ := strings.Cut(node.Net().Run(t, "ip", "-o", "route", "get", outsider.String()), "\\")
		all = append(all, node.Name+": "+strings.TrimSpace(way))
	}
	return strings.Join(all, "\n")
}

// withdraw deletes the claim, as a peer may: then nothing is agreed any more.
func (c *claimant) withdraw(t *testing.T) {
	t.Helper()
	key := client.ObjectKeyFromObject(c.first)
	if err := c.api.Delete(context.Background(), c.first.DeepCopy()); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	env.Eventually(t, env.Hang, "the claim is withdrawn", func() (string, bool) {
		err := beta.API.Get(context.Background(), key, &network.NetworkConfig{})
		_, tunnel := networks.See(beta, gamma)
		return fmt.Sprintf("%v; %v", err, tunnel), apierrors.IsNotFound(err) && tunnel != nil
	})
}

// announce claims a pod network, signed.
func (c *claimant) announce(t *testing.T, pods string) {
	t.Helper()
	ctx := context.Background()
	var now network.NetworkConfig
	err := c.api.Get(ctx, client.ObjectKeyFromObject(c.first), &now)
	if apierrors.IsNotFound(err) {
		now = *c.first.DeepCopy()
		c.sign(&now.Spec, pods)
		err = c.api.Create(ctx, &now)
	} else if err == nil {
		before := now.DeepCopy()
		c.sign(&now.Spec, pods)
		err = c.api.Patch(ctx, &now, client.MergeFrom(before))
	}
	if err != nil {
		t.Fatalf("claim %s: %v", pods, err)
	}
}

// decision is the reason that beta gives for what it did with the current claim; empty if it has not decided.
func (c *claimant) decision(t *testing.T) (reason, message string) {
	t.Helper()
	var now network.NetworkConfig
	if err := beta.API.Get(context.Background(), client.ObjectKeyFromObject(c.first), &now); err != nil {
		return "", err.Error()
	}
	ready := meta.FindStatusCondition(now.Status.Conditions, network.ConditionReady)
	if ready == nil || now.Status.ObservedGeneration != now.Generation {
		return "", "no decision"
	}
	return ready.Reason, ready.Message
}

func (c *claimant) decided(t *testing.T, want string) {
	t.Helper()
	env.Eventually(t, env.Hang, "beta decides on the claim: "+want, func() (string, bool) {
		reason, message := c.decision(t)
		return reason + ": " + message, reason == want
	})
}

// remapped wants a tunnel with the claimed network, under addresses that no host has.
func (c *claimant) remapped(t *testing.T, pods string) {
	t.Helper()
	env.Eventually(t, env.Hang, "beta has a tunnel to the claimed network", func() (string, bool) {
		view, err := networks.See(beta, gamma)
		return fmt.Sprint(view.Spec.RemotePodCIDR, err), err == nil && string(view.Spec.RemotePodCIDR) == pods
	})
	c.nothingElse(t, pods)
}

// nothingElse fails the test if a network leads to the peer that is not set apart for peers.
func (c *claimant) nothingElse(t *testing.T, claimed string) {
	t.Helper()
	view, err := networks.See(beta, gamma)
	if err != nil {
		t.Errorf("with %s claimed: %v", claimed, err)
		return
	}
	for _, way := range []string{view.Spec.RemoteNATPodCIDR, view.Spec.RemoteNATExternalCIDR} {
		prefix, err := netip.ParsePrefix(way)
		if err != nil || !apart.Contains(prefix.Addr()) || prefix.Bits() < apart.Bits() {
			t.Errorf("with %s claimed, %q leads to the peer, want a part of %s", claimed, way, apart)
		}
	}
}

// keepChanging changes the claim each second for a minute, and returns what was decided.
func (c *claimant) keepChanging(t *testing.T, agreed string) string {
	t.Helper()
	count := map[string]int{}
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; time.Since(began) < oneMinute; i++ {
		claimed := []string{itsNetwork, largeNetwork, "10.140.9.0/24", "10.140.0.0/16"}[i%4]
		c.announce(t, claimed)
		<-tick.C
		reason, message := c.decision(t)
		count[reason]++
		switch reason {
		case network.ReasonNetworkChanged, network.ReasonNetworkTooLarge, "": // not decided within the second: the next one comes before
		default:
			t.Errorf("claim %s: %s: %s", claimed, reason, message)
		}
		c.nothingElse(t, claimed)
		if view, err := networks.See(beta, gamma); err == nil && string(view.Spec.RemotePodCIDR) != agreed {
			t.Errorf("with %s claimed, beta uses %s, want %s, which is agreed", claimed, view.Spec.RemotePodCIDR, agreed)
		}
	}
	c.announce(t, itsNetwork)
	c.decided(t, network.ReasonNetworkChanged)
	if count[network.ReasonNetworkChanged] == 0 {
		t.Errorf("no changed claim was refused as such: %v", count)
	}
	return fmt.Sprint(count)
}

// wouldArrive: a packet to the address that beta has for one of the claimed network does arrive at gamma's gateway, which is the one that translates it. So the
// capture would have seen those for the host.
func (c *claimant) wouldArrive(t *testing.T, lane netns.Place) {
	t.Helper()
	c.withdraw(t)
	c.announce(t, itsNetwork)
	c.remapped(t, itsNetwork)
	address := valid(t)(see(t, beta, gamma).Pod(outsider))
	from := inside(t, traffic.AllServers(t, beta)[0])
	env.Eventually(t, env.Hang, "a packet to "+address.String()+" arrives at gamma's gateway", func() (string, bool) {
		what := word()
		end := capture(t, lane, what)
		_, _ = ask(t, from, "udp", traffic.Endpoint(address, traffic.EchoPort), "--word", what, "--bytes", "100", "--timeout", "300ms") // nothing answers
		n := 0
		for _, packets := range end() {
			if packets.To == address || packets.To == outsider {
				n += packets.Found
			}
		}
		return fmt.Sprintf("%d packets", n), n > 0
	})
}
