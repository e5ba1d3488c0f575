// SPDX-License-Identifier: Apache-2.0

package translator

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/kubetest"
)

// TestMappings: with the rights of a virtual kubelet, the mappings in the API server follow the endpoints, and those of others stay.
func TestMappings(t *testing.T) {
	const user, nodeName = "kubelet-test", "liqo-milan"
	admin := kubetest.Cluster(t)
	b := &kubetest.Env{T: t}
	scheme := runtime.NewScheme()
	b.Must(clientgoscheme.AddToScheme(scheme))
	b.Must(netv1alpha1.AddToScheme(scheme))
	_, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{"../../../deployments/liqo/crds/net.liqo.io_ipmappings.yaml"},
	})
	b.Must(err)
	b.Client, err = client.New(admin, client.Options{Scheme: scheme})
	b.Must(err)
	b.Bind(user, "", b.RBACMarkers("*.go")[""])
	b.Make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	byHand := &netv1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: netv1alpha1.IPMappingSpec{Address: "192.168.0.9"}}
	b.Make(byHand)

	cfg := rest.CopyConfig(admin)
	cfg.Impersonate.UserName = user
	server := netip.MustParseAddrPort("10.96.0.1:443")
	tr, err := New(cfg, Options{ClusterID: "milan-id", Namespace: "liqo-tenant-milan", Node: nodeName, APIServer: server, ErrNoCounterpart: errNoCounterpart})
	b.Must(err)
	tr.tunnel = &netv1alpha1.TunnelNetworks{LocalPodCIDR: "10.10.0.0/16", LocalNATPodCIDR: "None"}
	host, other := netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.9")
	endpoints := map[netip.Addr][]netv1alpha1.MappingPort{}
	tr.SetEndpoints(func() (map[netip.Addr][]netv1alpha1.MappingPort, bool) { return endpoints, true })
	tr.mappings.Add(t.Context(), fanin.Every)
	tr.nodes.Add(t.Context(), fanin.Every)
	b.Until("everything is listed", func() bool {
		return tr.mappings.Synced(fanin.Every) && tr.nodes.Synced(fanin.Every) && tr.nodes.Get(client.ObjectKey{Name: nodeName}) != nil
	})

	https, dns := netv1alpha1.MappingPort{Protocol: corev1.ProtocolTCP, Port: 443}, netv1alpha1.MappingPort{Protocol: corev1.ProtocolUDP, Port: 53}
	var all netv1alpha1.IPMappingList
	find := func(address netip.Addr) *netv1alpha1.IPMapping {
		b.Must(b.List(t.Context(), &all))
		for i := range all.Items {
			if all.Items[i].Spec.Address == address.String() {
				return &all.Items[i]
			}
		}
		return nil
	}
	// settled settles, and waits until the translator has observed the ports of a mapping; nil: it has none.
	settled := func(what string, at time.Time, address netip.Addr, ports []netv1alpha1.MappingPort) {
		t.Helper()
		b.Must(tr.settle(t.Context(), at))
		b.Until(what, func() bool {
			found := find(address)
			tr.mu.RLock()
			known := tr.mapped[address]
			tr.mu.RUnlock()
			return (found == nil) == (ports == nil) && (known == nil) == (ports == nil) && (found == nil ||
				slices.Equal(found.Spec.Ports, ports) && slices.Equal(known.Spec.Ports, ports))
		})
	}
	now := time.Now()
	endpoints = map[netip.Addr][]netv1alpha1.MappingPort{host: {https}, other: {https}}
	settled("a mapping is made", now, host, []netv1alpha1.MappingPort{https})
	if made := find(host); !made.Spec.Restricted || !slices.Equal(made.Spec.ClusterIDs, []string{"milan-id"}) || made.OwnerReferences[0].Name != nodeName {
		t.Errorf("made %+v", made)
	}
	endpoints[host] = []netv1alpha1.MappingPort{dns, https}
	settled("its ports follow", now, host, []netv1alpha1.MappingPort{https, dns})
	_, _ = tr.ToRemote(server.Addr())
	settled("the API server is mapped", now, server.Addr(), []netv1alpha1.MappingPort{https})
	if made := find(server.Addr()); made.Spec.Restricted {
		t.Errorf("the API server is refused: %+v", made.Spec)
	}

	endpoints = nil
	settled("its last endpoint is gone", now, host, []netv1alpha1.MappingPort{https, dns})
	endpoints = map[netip.Addr][]netv1alpha1.MappingPort{host: {https, dns}}
	settled("it is back in time", now.Add(unusedTime-time.Second), host, []netv1alpha1.MappingPort{https, dns})
	endpoints = nil
	settled("it is gone again", now.Add(unusedTime), host, []netv1alpha1.MappingPort{https, dns})
	settled("nothing needs it for long enough", now.Add(2*unusedTime), host, nil)
	if find(server.Addr()) == nil || find(other) == nil || len(find(other).Spec.Ports) > 0 || len(all.Items) != 2 {
		t.Errorf("left are %+v", all.Items)
	}
}
