// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestNodeFollowsTheNetwork: the node is Ready while its tunnel is up, with the rights of its role.
func TestNodeFollowsTheNetwork(t *testing.T) {
	b := newEnv(t)
	b.slice(granted("4", "8G"))
	var network atomic.Value // what pods are reported with
	check := func(o *Options) {
		o.CheckNetwork, o.OnNetwork = true, func(up bool) { network.Store(up) }
	}
	reported := func(up bool) {
		t.Helper()
		if got := network.Load(); got != up {
			t.Errorf("the network is reported as up=%v, want %t", got, up)
		}
	}
	stop := b.run(check)
	b.untilBecause(corev1.ConditionFalse, "no tunnel to the remote cluster is agreed")
	reported(false)
	// The tunnel of another peer does not count.
	b.tunnel("another", "another-id", netv1alpha1.Connected, "")
	milan := b.tunnel("milan", "milan-id", netv1alpha1.Connecting, "no handshake yet")
	b.untilBecause(corev1.ConditionFalse, "no handshake yet")
	b.report(milan, netv1alpha1.Connected, "")
	b.untilBecause(corev1.ConditionTrue, "the remote cluster answers")
	reported(true)
	b.report(milan, netv1alpha1.ConnectionError, "all probes lost")
	node := b.untilBecause(corev1.ConditionFalse, "all probes lost")
	reported(false)
	if down := find(node.Status.Conditions, corev1.NodeNetworkUnavailable); down.Status != corev1.ConditionTrue || down.Reason != "LiqoNetworkingDown" {
		t.Errorf("%+v", down)
	}
	b.report(milan, netv1alpha1.Connected, "")
	b.untilBecause(corev1.ConditionTrue, "the remote cluster answers")

	// A new latency does not change the node.
	writes, asked := b.writes.Load(), b.provider.asked.Load()
	milan.Status.Connection.Latency.Value = "3ms"
	b.report(milan, netv1alpha1.Connected, "")
	b.Until("probing goes on", func() bool { return b.provider.asked.Load() > asked+5 })
	if got := b.writes.Load() - writes; got != 0 {
		t.Errorf("%d writes for a new latency", got)
	}
	// After a restart, the node is not written before the tunnel is in the cache.
	b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	stop()
	b.run(check)
	asked = b.provider.asked.Load()
	b.Until("it runs again", func() bool { return b.provider.asked.Load() > asked+5 })
	if again := b.untilReady(corev1.ConditionTrue); again.ResourceVersion != node.ResourceVersion {
		t.Errorf("the restart changed the node:\n%+v\n%+v", node.Status, again.Status)
	}
	b.Must(b.Delete(t.Context(), milan))
	b.untilBecause(corev1.ConditionFalse, "no tunnel to the remote cluster is agreed")
	if refused := b.denied.All(); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
}

func (b *env) untilBecause(status corev1.ConditionStatus, because string) (node *corev1.Node) {
	b.T.Helper()
	b.Until("node Ready="+string(status)+": "+because, func() bool {
		node = b.untilReady(status)
		return strings.Contains(ready(node).Message, because)
	})
	return node
}

func (b *env) tunnel(name, clusterID string, status netv1alpha1.ConnectionStatus, message string) *netv1alpha1.TunnelEndpoint {
	b.T.Helper()
	tunnel := &netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{labels.TunnelCluster: clusterID}},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: clusterID, ClusterName: name},
			LocalPodCIDR:    "10.200.0.0/16", LocalExternalCIDR: "10.70.0.0/16", RemotePodCIDR: "10.201.0.0/16", RemoteExternalCIDR: "10.71.0.0/16",
			BackendType: "wireguard", BackendConfig: map[string]string{"port": "5871"},
		},
	}
	b.Make(tunnel)
	b.report(tunnel, status, message)
	return tunnel
}

func (b *env) report(tunnel *netv1alpha1.TunnelEndpoint, status netv1alpha1.ConnectionStatus, message string) {
	b.T.Helper()
	tunnel.Status.Connection.Status, tunnel.Status.Connection.StatusMessage = status, message
	b.Must(b.Status().Update(b.T.Context(), tunnel))
}
