// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/wireguard"
)

// intruder is the name of a hostile machine's namespace, links and device.
const intruder = "intruder"

// machine is the machine of the intruder.
type machine struct {
	netns.Place
	device *wireguard.Device
	key    string // of the gateway that it attacks
	peer   []string
}

// Handshake negotiates new session keys, because the gateway may have discarded the old ones.
func (m *machine) Handshake(t *testing.T) {
	t.Helper()
	m.device.Set(t, "public_key="+m.key, "remove=true")
	m.device.Set(t, m.peer...)
	m.device.Connected(t)
}

// intrude adds a machine to a cluster's network that poses as its gateway to the peer of the view, with the cluster's own key.
func intrude(t *testing.T, c *env.Cluster, view networks.View) *machine {
	t.Helper()
	host := netns.Host()
	_ = host.Try("ip", "netns", "del", intruder) // left by an interrupted run
	host.Run(t, "ip", "netns", "add", intruder)
	t.Cleanup(func() { host.Run(t, "ip", "netns", "del", intruder) })
	place := netns.Named(intruder)
	address := c.NodeCIDR.Addr()
	for range 99 {
		address = address.Next()
	}
	host.Run(t, "ip", "link", "add", "eth0", "netns", intruder, "type", "veth", "peer", "name", intruder, "netns", "lpg-wan")
	netns.Router().Run(t, "ip", "link", "set", intruder, "master", bridge(c), "up")
	place.Run(t, "ip", "addr", "add", fmt.Sprintf("%s/%d", address, c.NodeCIDR.Bits()), "dev", "eth0")
	place.Run(t, "ip", "link", "set", "eth0", "up")
	place.Run(t, "ip", "route", "add", "default", "via", c.NodeCIDR.Addr().Next().String())

	var secret corev1.Secret
	if err := c.API.Get(context.Background(), client.ObjectKey{Namespace: "liqo", Name: "liqo-gateway-keys"}, &secret); err != nil {
		t.Fatal(err)
	}
	device := wireguard.Start(t, clusters, place, intruder)
	device.Set(t, "private_key="+wireguard.Key(t, string(secret.Data["lane-0.current"])), "listen_port=5871")
	key := wireguard.Key(t, view.Spec.BackendConfig["publicKey"])
	return &machine{place, device, key, []string{
		"public_key=" + key, "endpoint=" + view.Spec.EndpointIP + ":" + view.Spec.BackendConfig["port"],
		"persistent_keepalive_interval=1", "allowed_ip=0.0.0.0/0",
	}}
}
