// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

func testNode(name string, ready bool, addresses ...string) corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, one := range addresses {
		kind, address, _ := strings.Cut(one, "=")
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: address})
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	return node
}

func TestEndpoint(t *testing.T) {
	nodes := []corev1.Node{
		testNode("n3", true, "InternalIP=192.0.2.3", "Hostname=n3"),
		testNode("n2", true, "InternalIP=192.0.2.2", "ExternalIP=198.51.100.2", "InternalIP=fd00::2"),
		testNode("n1", false, "InternalIP=192.0.2.1"),
	}
	virtual := testNode("a-virtual", true, "InternalIP=10.0.0.9")
	virtual.Labels = map[string]string{labels.Type: labels.TypeVirtualNode}
	nodes = append(nodes, virtual)
	for name, row := range map[string]struct {
		kind        corev1.ServiceType
		annotations map[string]string
		ingress     []corev1.LoadBalancerIngress
		local       bool
		runsOn      string
		want        string // addresses, then port
		problem     string
	}{
		"cluster IP": {kind: corev1.ServiceTypeClusterIP, want: " 5871"},
		"cluster IP, overridden": {
			kind: corev1.ServiceTypeClusterIP, annotations: map[string]string{labels.OverrideAddress: "203.0.113.5"}, want: "203.0.113.5 5871",
		},
		"both overridden": {
			kind: corev1.ServiceTypeNodePort, annotations: map[string]string{labels.OverrideAddress: "gw.example.com", labels.OverridePort: "443"},
			want: "gw.example.com 443",
		},
		"port overridden": {
			kind: corev1.ServiceTypeNodePort, annotations: map[string]string{labels.OverridePort: "443"}, runsOn: "n3",
			want: "192.0.2.3,198.51.100.2,192.0.2.2 443",
		},
		"bad port": {
			kind: corev1.ServiceTypeNodePort, annotations: map[string]string{labels.OverridePort: "65536"}, want: " 31000", problem: `"65536"`,
		},
		"bad address": {
			kind: corev1.ServiceTypeNodePort, annotations: map[string]string{labels.OverrideAddress: "127.0.0.1"}, want: " 31000",
			problem: "loopback",
		},
		"no address": {
			kind: corev1.ServiceTypeNodePort, annotations: map[string]string{labels.OverrideAddress: "not a host"}, want: " 31000",
			problem: `"not a host"`,
		},
		"balancer": {
			kind:    corev1.ServiceTypeLoadBalancer,
			ingress: []corev1.LoadBalancerIngress{{Hostname: "lb.example.com"}, {IP: "203.0.113.9"}, {IP: "fd00::9"}},
			want:    "203.0.113.9,lb.example.com 5871",
		},
		"balancer pending": {kind: corev1.ServiceTypeLoadBalancer, want: " 5871", problem: "liqo/liqo-gateway has no address yet"},
		"pending but overridden": {
			kind: corev1.ServiceTypeLoadBalancer, annotations: map[string]string{labels.OverrideAddress: "203.0.113.5"}, want: "203.0.113.5 5871",
		},
		"node of the pod first":   {kind: corev1.ServiceTypeNodePort, runsOn: "n3", want: "192.0.2.3,198.51.100.2,192.0.2.2 31000"},
		"even if it is not Ready": {kind: corev1.ServiceTypeNodePort, runsOn: "n1", want: "192.0.2.1,198.51.100.2,192.0.2.2,192.0.2.3 31000"},
		"no pod runs":             {kind: corev1.ServiceTypeNodePort, want: "198.51.100.2,192.0.2.2,192.0.2.3 31000"},
		"stated node": {
			kind: corev1.ServiceTypeNodePort, annotations: map[string]string{labels.GatewayNodeIP: "203.0.113.1"}, runsOn: "n3",
			want: "203.0.113.1,192.0.2.3,198.51.100.2,192.0.2.2 31000",
		},
		"local traffic policy":     {kind: corev1.ServiceTypeNodePort, local: true, runsOn: "n3", want: "192.0.2.3 31000"},
		"local, and no pod":        {kind: corev1.ServiceTypeNodePort, local: true, want: " 31000", problem: "externalTrafficPolicy is Local"},
		"the pod's node is gone":   {kind: corev1.ServiceTypeNodePort, runsOn: "n9", want: "198.51.100.2,192.0.2.2,192.0.2.3 31000"},
		"local, its node is gone":  {kind: corev1.ServiceTypeNodePort, local: true, runsOn: "n9", want: " 31000", problem: "externalTrafficPolicy is Local"},
		"names an external thing":  {kind: corev1.ServiceTypeExternalName, want: " 5871"},
		"empty override is a typo": {kind: corev1.ServiceTypeClusterIP, annotations: map[string]string{labels.OverrideAddress: ""}, want: " 5871", problem: `""`},
	} {
		service := corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-gateway", Annotations: row.annotations, Labels: map[string]string{labels.GatewayLane: "0"}},
			Spec: corev1.ServiceSpec{
				Type:  row.kind,
				Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 5872}, {Protocol: corev1.ProtocolUDP, Port: 5871, NodePort: 31000}},
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: row.ingress}},
		}
		if row.local {
			service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
		got := endpointOf(&service, row.runsOn, nodes)
		text := fmt.Sprintf(" %d", got.Port)
		if len(got.Carriers) == 1 {
			text = fmt.Sprintf("%s %d", strings.Join(got.Carriers[0].Addresses, ","), got.Carriers[0].Port)
		}
		if text != row.want || (got.Problem == "") != (row.problem == "") || !strings.Contains(got.Problem, row.problem) {
			t.Errorf("%s: %q, problem %q; want %q, %q", name, text, got.Problem, row.want, row.problem)
		}
	}
}

func TestManyNodes(t *testing.T) {
	var nodes []corev1.Node
	for i := range 40 {
		nodes = append(nodes, testNode(fmt.Sprintf("n%02d", i), true, fmt.Sprintf("InternalIP=192.0.2.%d", i+1)))
	}
	service := corev1.Service{
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 1, NodePort: 2}}},
	}
	got := endpointOf(&service, "n30", nodes).Carriers[0].Addresses
	if len(got) != MaxAddresses || got[0] != "192.0.2.31" {
		t.Errorf("%v", got)
	}
}

func TestEndpointsOfLanes(t *testing.T) {
	service := func(name, lane string) corev1.Service {
		return corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.GatewayLane: lane}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 5871}}},
		}
	}
	all := Gateways([]corev1.Service{
		service("b", "1"), service("z", "0"), service("a", "0"), service("no", "8"), service("none", "x"), service("minus", "-1"),
	}, nil, nil)
	if len(all) != 2 || all[0].Lane != 0 || all[1].Lane != 1 {
		t.Errorf("%+v", all)
	}
	stream := service("a-stream", "1")
	stream.Spec.Ports[0].Protocol, stream.Spec.Ports[0].Port = corev1.ProtocolTCP, 443
	stream.Spec.Type, stream.Annotations = corev1.ServiceTypeClusterIP, map[string]string{labels.OverrideAddress: "gw.example.com"}
	both := Gateways([]corev1.Service{service("b", "1"), stream}, nil, nil)
	want := []netv1alpha1.Carrier{
		{Type: netv1alpha1.CarrierTLS, Addresses: []string{"gw.example.com"}, Port: 443},
		{Type: netv1alpha1.CarrierWebSocket, Addresses: []string{"gw.example.com"}, Port: 443, Path: "/liqo/lane-1"},
	}
	if len(both) != 1 || !reflect.DeepEqual(both[0].Carriers, want) || both[0].Port != 5871 {
		t.Errorf("%+v, want %+v", both, want)
	}
	bare := service("bare", "0")
	bare.Spec.Ports = nil
	if got := endpointOf(&bare, "", nil); !strings.Contains(got.Problem, "neither a UDP port nor a TCP port") {
		t.Errorf("%+v", got)
	}
}

func TestCheckHost(t *testing.T) {
	inside := []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}
	for _, good := range []string{"203.0.113.7", "10.1.2.3", "gw.example.com", "gw", "1.example.com"} {
		if err := checkHost(good, inside); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.9.9.9", "169.254.169.254", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"10.200.3.4", "::1", "fd00::1", "::ffff:1.2.3.4",
		"localhost", "a.localhost", "kubernetes.default.svc", "x.svc.cluster.local", "1.2.3", "1.2.3.4.5", "010.1.1.1", "1.2.3.4:80", "a b",
		"http://x", "-x.com", "x\n", "UPPER.example.com",
		strings.Repeat("a.", 127) + "aaaa", "1.2.3.4%eth0",
	} {
		if checkHost(bad, inside) == nil {
			t.Errorf("%.40q is accepted", bad)
		}
	}
}

// TestWebSocketAt: the URL of a proxy becomes the way that peers are given, or an error that quotes it.
func TestWebSocketAt(t *testing.T) {
	for text, want := range map[string]string{
		"https://gw.example.org/liqo/lane-1":     "WebSocket gw.example.org 443 /liqo/lane-1",
		"https://gw.example.org:8443/a/b/lane-1": "WebSocket gw.example.org 8443 /a/b/lane-1",
		"http://192.0.2.1/lane-1":                "PlainWebSocket 192.0.2.1 80 /lane-1",
		"http://192.0.2.1:81":                    "PlainWebSocket 192.0.2.1 81 /liqo/lane-1",
		"https://gw.example.org/liqo/lane-2":     "/lane-1 at the end",
		"https://gw.example.org/li%20qo/lane-1":  "/lane-1 at the end",
		"https://user:secret@gw.example.org":     "not a URL",
		"https://gw.example.org/lane-1?a=b":      "not a URL",
		"ftp://gw.example.org/lane-1":            "scheme",
		"https://gw.example.org:0/lane-1":        "port",
		"https://127.0.0.1/lane-1":               "loopback",
		"https://localhost/lane-1":               "resolves differently",
		"gw.example.org/lane-1":                  "scheme",
	} {
		way, err := webSocketAt(text, 1)
		got := fmt.Sprintf("%s %s %d %s", way.Type, strings.Join(way.Addresses, ","), way.Port, way.Path)
		if err != nil {
			if got = err.Error(); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %q", text, got, want)
			}
			continue
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestStreamEndpoints: TLS at the stream port, the WebSocket there or behind the proxy, and a wrong annotation takes none of the other ways.
func TestStreamEndpoints(t *testing.T) {
	service := func(name string, protocol corev1.Protocol, kind corev1.ServiceType, annotations map[string]string) corev1.Service {
		return corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "liqo", Labels: map[string]string{labels.GatewayLane: "0"}, Annotations: annotations},
			Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Protocol: protocol, Port: 443}}},
			Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}}},
		}
	}
	at := func(url string) map[string]string { return map[string]string{labels.WebSocketURL: url} }
	for name, test := range map[string]struct {
		stream  corev1.Service
		want    string
		problem bool
	}{
		"alone":           {service("s", "TCP", "LoadBalancer", nil), "UDP TLS WebSocket", false},
		"and a proxy":     {service("s", "TCP", "LoadBalancer", at("https://a.example.org/x/lane-0")), "UDP TLS WebSocket", false},
		"a proxy only":    {service("s", "TCP", "ClusterIP", at("http://a.example.org/x/lane-0")), "UDP PlainWebSocket", false},
		"a wrong address": {service("s", "TCP", "LoadBalancer", at("no URL")), "UDP TLS", true},
	} {
		all := Gateways([]corev1.Service{service("u", "UDP", "LoadBalancer", nil), test.stream}, nil, nil)
		var got []string
		for _, way := range all[0].Carriers {
			got = append(got, way.Type)
		}
		if text := strings.Join(got, " "); text != test.want || (all[0].Problem != "") != test.problem {
			t.Errorf("%s: %s, %q", name, text, all[0].Problem)
		}
	}
}
