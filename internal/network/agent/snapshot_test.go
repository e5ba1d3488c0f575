// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/plan"
)

func key(name string) string {
	raw := [32]byte{}
	copy(raw[:], name)
	return base64.StdEncoding.EncodeToString(raw[:])
}

// tunnel to a peer whose number makes its networks.
func tunnel(id string, number int, change func(*netv1alpha1.TunnelEndpoint)) netv1alpha1.TunnelEndpoint {
	t := netv1alpha1.TunnelEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id, Generation: int64(number), Labels: map[string]string{labels.TunnelCluster: id}},
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: "name-" + id},
			LocalPodCIDR:    "10.10.0.0/16", LocalNATPodCIDR: fmt.Sprintf("10.%d.0.0/16", 100+number),
			LocalExternalCIDR: "10.70.0.0/16", LocalNATExternalCIDR: netv1alpha1.NotRemapped,
			RemotePodCIDR: "10.10.0.0/16", RemoteNATPodCIDR: fmt.Sprintf("10.%d.0.0/16", 150+number),
			RemoteExternalCIDR: netv1alpha1.CIDR(fmt.Sprintf("10.%d.0.0/16", 200+number)),
			Lanes: []netv1alpha1.Lane{
				{Number: 1, PublicKey: key(id + "1")},
				{Number: 0, PublicKey: key(id + "0"), Carriers: []netv1alpha1.Carrier{
					{Type: "TCP", Addresses: []string{"203.0.113.99"}, Port: 443},
					{Type: "UDP", Addresses: []string{"203.0.113.1", "gw.example"}, Port: 5871},
				}},
			},
		},
	}
	if change != nil {
		change(&t)
	}
	return t
}

func TestViewOfTunnels(t *testing.T) {
	view, err := NewView(Objects{Tunnels: []netv1alpha1.TunnelEndpoint{tunnel("rome", 2, nil), tunnel("milan", 1, func(t *netv1alpha1.TunnelEndpoint) {
		t.Status.Connection.MTU, t.Labels[labels.TunnelShown] = 1380, "true"
		t.Spec.Lanes, t.Spec.EndpointIP = nil, "gw.milan.example"
		t.Spec.BackendConfig = map[string]string{
			"publicKey": key("m"), "port": "30871", "previousKey.0": key("old") + " 2026-01-01T00:00:02Z",
			"previousKey.1": "what? 2026-01-01T00:00:02Z", "previousKey.2": key("old"),
		}
	})}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(view.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	want := `local:
  external: 10.70.0.0/16
  podCIDRs:
  - 10.10.0.0/16
peers:
- clusterID: milan
  external:
    from: 10.70.0.0/16
    to: 10.70.0.0/16
  lanes:
  - endpoint: ""
    keys:
    - bQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    number: 0
  mtu: 1380
  name: name-milan
  pods:
    from: 10.10.0.0/16
    to: 10.101.0.0/16
  remoteExternal: 10.201.0.0/16
  remotePods: 10.151.0.0/16
  shown: true
- clusterID: rome
  external:
    from: 10.70.0.0/16
    to: 10.70.0.0/16
  lanes:
  - endpoint: ""
    keys:
    - cm9tZTAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    number: 0
  - endpoint: ""
    keys:
    - cm9tZTEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
    number: 1
  name: name-rome
  pods:
    from: 10.10.0.0/16
    to: 10.102.0.0/16
  remoteExternal: 10.202.0.0/16
  remotePods: 10.152.0.0/16
self:
  address: ""
  node: ""
  podMTU: 0
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	facts := map[string]PeerView{
		"milan": {
			Generation: 1, Endpoints: map[int][]Endpoint{0: {{Kind: "UDP", Host: "gw.milan.example", Port: 30871}}},
			Previous: map[int]PreviousKey{0: {key("old"), time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)}},
		},
		"rome": {Generation: 2, Endpoints: map[int][]Endpoint{0: {{Kind: "UDP", Host: "203.0.113.1", Port: 5871}, {Kind: "UDP", Host: "gw.example", Port: 5871}}}},
	}
	if diff := cmp.Diff(facts, view.Peers); diff != "" {
		t.Error(diff)
	}
}

// A broken tunnel endpoint is named in the error, and the others are not affected.
// TestAttackUnanswered: the networks of this cluster have changed. Peers that have not answered that keep the old ones in their tunnel endpoints, and whatever
// their IDs, a peer that has answered is reached. While none has, all are reached as before.
func TestAttackUnanswered(t *testing.T) {
	changed := func(t *netv1alpha1.TunnelEndpoint) {
		t.Spec.LocalPodCIDR, t.Spec.LocalExternalCIDR = "10.11.0.0/16", "10.71.0.0/16"
	}
	pending := func(generation int64) func(*netv1alpha1.TunnelEndpoint) {
		return func(t *netv1alpha1.TunnelEndpoint) {
			t.Status.Conditions = []metav1.Condition{{
				Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: netv1alpha1.ReasonAnswerPending, ObservedGeneration: generation, Message: "any",
			}}
		}
	}
	both := func(t *netv1alpha1.TunnelEndpoint) { changed(t); pending(t.Generation - 1)(t) }
	for name, test := range map[string]struct {
		first, second, third func(*netv1alpha1.TunnelEndpoint)
		reached              []int
	}{
		"none has answered":            {pending(1), pending(2), pending(3), []int{1, 2, 3}},
		"the first one has not":        {pending(1), changed, changed, []int{2, 3}},
		"the last one has":             {pending(1), pending(2), changed, []int{3}},
		"the first one has":            {changed, pending(2), pending(3), []int{1}},
		"the status is one step later": {pending(1), both, pending(3), []int{2}},
		"all have answered":            {changed, both, changed, []int{1, 2, 3}},
	} {
		objects := Objects{
			Tunnels: []netv1alpha1.TunnelEndpoint{tunnel("aaa", 1, test.first), tunnel("bbb", 2, test.second), tunnel("ccc", 3, test.third)},
			Nodes: []corev1.Node{{
				ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
			}},
			Gateways: []corev1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Name: "g0", Labels: map[string]string{labels.GatewayLane: "0"}},
				Status:     corev1.PodStatus{PodIP: "192.0.2.2", Phase: corev1.PodRunning},
			}},
		}
		for i := range objects.Tunnels {
			if _, err := trimTunnel(&objects.Tunnels[i]); err != nil { // as the cache does
				t.Fatal(err)
			}
		}
		view, err := NewView(objects)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		view.Snapshot.Self = plan.Self{Node: "n1", Address: netip.MustParseAddr("192.0.2.1"), PodMTU: 1500}
		state, err := plan.ForNode(view.Snapshot)
		var reached []int
		for number := range 4 {
			to := netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 150+number))
			if slices.ContainsFunc(state.Routes, func(r hoststate.Route) bool { return r.To == to && !r.Blackhole }) {
				reached = append(reached, number)
			}
		}
		if !slices.Equal(reached, test.reached) {
			t.Errorf("%s: the peers %v are reached, want %v: %v", name, reached, test.reached, err)
		}
	}
}

func TestViewOfBadTunnels(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*netv1alpha1.TunnelEndpoint)
		want  string
		stays bool
	}{
		"no network":         {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.RemotePodCIDR = "nonsense" }, "spec.remotePodCIDR", false},
		"remapped to what":   {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.LocalNATPodCIDR = "none" }, "spec.localPodCIDR, remapped", false},
		"empty":              {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.LocalExternalCIDR = "" }, "spec.localExternalCIDR", false},
		"IPv6":               {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.RemoteExternalCIDR = "fd00::/112" }, "spec.remoteExternalCIDR", false},
		"IPv4 in IPv6":       {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.RemoteNATExternalCIDR = "::ffff:10.1.0.0/112" }, "spec.remoteExternalCIDR", false},
		"no cluster":         {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.ClusterIdentity.ClusterID = "" }, "clusterID", false},
		"another cluster":    {func(t *netv1alpha1.TunnelEndpoint) { t.Labels[labels.TunnelCluster] = "milan" }, "clusterID", false},
		"younger duplicate":  {func(t *netv1alpha1.TunnelEndpoint) { *t = duplicate(t) }, "older one", false},
		"key":                {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.Lanes[0].PublicKey = "short" }, "spec.lanes[1].publicKey", true},
		"lane out of range":  {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.Lanes[0].Number = 8 }, "number 8", true},
		"lane twice":         {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.Lanes[0].Number = 0 }, "number 0 occurs twice", true},
		"no lane, no key":    {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.Lanes = nil }, "publicKey", true},
		"negative lane":      {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.Lanes[0].Number = -1 }, "number -1", true},
		"very long nonsense": {func(t *netv1alpha1.TunnelEndpoint) { t.Spec.Lanes[0].PublicKey = strings.Repeat("x", 1<<20) }, "publicKey", true},
	} {
		t.Run(name, func(t *testing.T) {
			view, err := NewView(Objects{Tunnels: []netv1alpha1.TunnelEndpoint{tunnel("bad", 1, test.spoil), tunnel("milan", 2, nil), tunnel("rome", 3, nil)}})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "/bad") {
				t.Errorf("error %v, want one about %s of bad", err, test.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			var ids []string
			for _, peer := range view.Snapshot.Peers {
				ids = append(ids, peer.ClusterID)
			}
			want := []string{"milan", "rome"}
			if test.stays {
				want = []string{"bad", "milan", "rome"}
			}
			if diff := cmp.Diff(want, ids); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func duplicate(of *netv1alpha1.TunnelEndpoint) netv1alpha1.TunnelEndpoint {
	return tunnel("milan", 9, func(t *netv1alpha1.TunnelEndpoint) {
		t.Namespace, t.Name, t.CreationTimestamp = of.Namespace, of.Name, metav1.NewTime(time.Now())
	})
}

func TestViewOfNodesAndGateways(t *testing.T) {
	node := func(name, address string, networks ...string) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: networks},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}},
		}
	}
	virtual := node("liqo-milan", "10.10.0.77")
	virtual.Labels = map[string]string{labels.Type: labels.TypeVirtualNode}
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := func(name, lane, address string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.GatewayLane: lane}, CreationTimestamp: metav1.NewTime(born)},
			Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{PodIP: address, Phase: corev1.PodRunning},
		}
		if change != nil {
			change(&p)
		}
		return p
	}
	view, err := NewView(Objects{
		Nodes: []corev1.Node{
			node("n3", "192.168.1.13"), node("n2", "192.168.1.12", "fd00::/64", "10.10.3.0/24", "10.10.1.0/24"), node("n1", "192.168.1.11", "10.10.0.0/24"),
			node("v6", "fd00::1"), node("fresh", ""), virtual,
		},
		Gateways: []corev1.Pod{
			pod("old", "0", "10.10.0.8", nil),
			pod("new", "0", "10.10.0.9", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(born.Add(time.Hour)) }),
			pod("pending", "0", "10.10.0.10", func(p *corev1.Pod) {
				p.CreationTimestamp, p.Status.Phase = metav1.NewTime(born.Add(2*time.Hour)), corev1.PodPending
			}),
			pod("ending", "1", "10.10.0.11", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
			pod("failed", "2", "10.10.0.12", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			pod("no-address", "3", "", nil), pod("no-lane", "", "10.10.0.13", nil), pod("lane-9", "9", "10.10.0.14", nil),
			pod("starts", "4", "10.10.0.15", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		},
		Pods: []corev1.Pod{
			pod("p2", "", "10.10.9.2", func(p *corev1.Pod) { p.Spec.NodeName = "n3" }),
			pod("p1", "", "10.10.9.1", func(p *corev1.Pod) { p.Spec.NodeName = "n3" }),
			pod("host", "", "192.168.1.13", func(p *corev1.Pod) { p.Spec.NodeName, p.Spec.HostNetwork = "n3", true }),
			pod("done", "", "10.10.9.3", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n3", corev1.PodSucceeded }),
			pod("elsewhere", "", "10.10.0.3", nil),
		},
		Mappings: []netv1alpha1.IPMapping{
			{
				ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: netv1alpha1.IPMappingSpec{Address: "192.0.2.1", ClusterIDs: []string{"z", "a"}},
				Status: netv1alpha1.IPMappingStatus{ExternalAddress: "10.70.0.21"},
			},
			{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: netv1alpha1.IPMappingSpec{
				Address: "192.0.2.2",
				Ports:   []netv1alpha1.MappingPort{{Protocol: "UDP", Port: 53}, {Protocol: "TCP", Port: 443}, {Protocol: "UDP", Port: 53}},
			}, Status: netv1alpha1.IPMappingStatus{ExternalAddress: "10.70.0.19"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: netv1alpha1.IPMappingSpec{Address: "192.0.2.3"}},
			{
				ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: netv1alpha1.IPMappingSpec{Address: "nowhere"},
				Status: netv1alpha1.IPMappingStatus{ExternalAddress: "10.70.0.18"},
			},
		},
	})
	if err == nil || !strings.Contains(err.Error(), "ipmapping bad: spec.address") {
		t.Errorf("error %v", err)
	}
	got, err := yaml.Marshal(view.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	want := `gateways:
- address: 10.10.0.9
  lane: 0
  node: n1
- address: 10.10.0.15
  lane: 4
  node: n1
local:
  external: ""
  podCIDRs: null
mappings:
- external: 10.70.0.19
  ports:
  - port: 443
    protocol: tcp
  - port: 53
    protocol: udp
  target: 192.0.2.2
- clusterIDs:
  - a
  - z
  external: 10.70.0.21
  target: 192.0.2.1
nodes:
- address: 192.168.1.11
  name: n1
  podCIDRs:
  - 10.10.0.0/24
- address: 192.168.1.12
  name: n2
  podCIDRs:
  - 10.10.1.0/24
  - 10.10.3.0/24
- address: 192.168.1.13
  name: n3
  pods:
  - 10.10.9.1
  - 10.10.9.2
self:
  address: ""
  node: ""
  podMTU: 0
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func component(name string) map[string]string { return map[string]string{labels.AppComponent: name} }

// TestAttackM4: with restricted traffic, the pods that belong to a peering are those that run for the peer, and those of namespaces that this cluster
// offloads to it.
func TestAttackM4(t *testing.T) {
	pod := func(namespace, name, address, origin string) corev1.Pod {
		one := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{PodIP: address, Phase: corev1.PodRunning}}
		if origin != "" {
			one.Labels = map[string]string{labels.Origin: origin}
		}
		return one
	}
	finished, host := pod("shop", "finished", "10.10.0.20", ""), pod("shop", "host", "192.168.1.11", "")
	finished.Status.Phase, host.Spec.HostNetwork = corev1.PodSucceeded, true
	objects := Objects{
		Tunnels:    []netv1alpha1.TunnelEndpoint{tunnel("milan", 1, nil), tunnel("rome", 2, nil)},
		Restricted: true,
		NamespaceMaps: []vkv1alpha1.NamespaceMap{{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.RemoteID: "milan"}},
			Spec:       vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-paris"}},
		}},
		Pods: []corev1.Pod{
			pod("shop", "b", "10.10.0.3", ""), pod("shop", "a", "10.10.0.2", ""), pod("shop", "remote", "10.151.0.9", ""), pod("shop", "starting", "", ""),
			finished, host, pod("kube-system", "dns", "10.10.0.4", ""), pod("web-rome", "theirs", "10.10.0.5", "rome"), pod("web-turin", "others", "10.10.0.6", "turin"),
		},
	}
	view, err := NewView(objects)
	if err != nil || !view.Snapshot.Restricted {
		t.Fatalf("restricted: %t, %v", view.Snapshot.Restricted, err)
	}
	for i, want := range []string{"milan [10.10.0.2 10.10.0.3]", "rome [10.10.0.5]"} {
		if peer := view.Snapshot.Peers[i]; fmt.Sprint(peer.ClusterID, " ", peer.Reachable) != want {
			t.Errorf("%s %v, want %s", peer.ClusterID, peer.Reachable, want)
		}
	}

	// In-band, the controller manager and the virtual kubelet of the peer reach it through the tunnel, and nothing else of Liqo does.
	manager, pretender, auth := pod("liqo", "manager", "10.10.0.7", ""), pod("shop-2", "like-a-manager", "10.10.0.8", ""), pod("liqo", "auth", "10.10.0.9", "")
	manager.Labels, pretender.Labels, auth.Labels = component("controller-manager"), component("controller-manager"), component("auth")
	objects.Namespace = "liqo"
	objects.Tunnels[1].Labels = map[string]string{labels.TunnelInBand: "true"}
	objects.Tunnels[0].Namespace, objects.Tunnels[1].Namespace = "liqo-tenant-milan", "liqo-tenant-rome"
	objects.Pods = append(
		objects.Pods, manager, pretender, auth, pod("liqo-tenant-rome", "virtual-kubelet", "10.10.0.10", ""),
		pod("liqo-tenant-milan", "virtual-kubelet", "10.10.0.11", ""),
	)
	if view, err = NewView(objects); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"milan [10.10.0.2 10.10.0.3]", "rome [10.10.0.5 10.10.0.7 10.10.0.10]"} {
		if peer := view.Snapshot.Peers[i]; fmt.Sprint(peer.ClusterID, " ", peer.Reachable) != want {
			t.Errorf("in-band, %s %v, want %s", peer.ClusterID, peer.Reachable, want)
		}
	}
	objects.Restricted = false
	if view, _ := NewView(objects); view.Snapshot.Restricted || view.Snapshot.Peers[0].Reachable != nil {
		t.Error("the traffic is restricted by default")
	}
}
