// SPDX-License-Identifier: Apache-2.0

package ways

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"liqo.io/liqo/apis/labels"
)

func gatewayService(name string, kind corev1.ServiceType, protocol corev1.Protocol, port int32) *corev1.Service {
	one := &corev1.Service{}
	one.Name, one.Namespace = name, "liqo"
	one.Labels = map[string]string{labels.Gateway: "true", labels.GatewayLane: "0"}
	one.Spec.Type = kind
	one.Spec.Ports = []corev1.ServicePort{{Protocol: protocol, Port: port, NodePort: 31000}}
	if kind == corev1.ServiceTypeLoadBalancer {
		one.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	}
	return one
}

// TestFind: the ways of the first gateway, for each kind of Service.
func TestFind(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}},
	}}
	udp := gatewayService("liqo-gateway", corev1.ServiceTypeLoadBalancer, corev1.ProtocolUDP, 5871)
	stream := gatewayService("liqo-gateway-stream", corev1.ServiceTypeNodePort, corev1.ProtocolTCP, 443)
	inside := gatewayService("liqo-gateway-stream", corev1.ServiceTypeClusterIP, corev1.ProtocolTCP, 443)
	behind := inside.DeepCopy()
	behind.Annotations = map[string]string{labels.WebSocketURL: "http://liqo.example.com:8080/tunnel/lane-0"}
	second := gatewayService("liqo-gateway-1", corev1.ServiceTypeLoadBalancer, corev1.ProtocolUDP, 5871)
	second.Labels[labels.GatewayLane] = "1"
	onlyUDP := []Way{{"UDP", "203.0.113.7", 5871, ""}}
	for name, test := range map[string]struct {
		services []*corev1.Service
		want     []Way
	}{
		"no gateway": {nil, nil},
		"UDP":        {[]*corev1.Service{udp, second}, onlyUDP},
		"streams": {
			[]*corev1.Service{stream, udp},
			append(slices.Clone(onlyUDP), Way{"TLS", "192.0.2.9", 31000, ""}, Way{"WebSocket", "192.0.2.9", 31000, "/liqo/lane-0"}),
		},
		"not reached":       {[]*corev1.Service{udp, inside}, onlyUDP},
		"behind an ingress": {[]*corev1.Service{udp, behind}, append(slices.Clone(onlyUDP), Way{"PlainWebSocket", "liqo.example.com", 8080, "/tunnel/lane-0"})},
		"without ports":     {[]*corev1.Service{{ObjectMeta: udp.ObjectMeta}}, nil},
	} {
		client := fake.NewClientset(node)
		for _, one := range test.services {
			if err := client.Tracker().Add(one); err != nil {
				t.Fatal(err)
			}
		}
		text, err := Finder{client.CoreV1(), "liqo"}.Find(t.Context())
		if got := Parse(text); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

// FuzzParse: whatever a provider states, what is believed is bounded and can be shown.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"kind":"UDP","host":"203.0.113.7","port":5871},{"kind":"TLS","host":"\u001b[31m","port":1},{"kind":"QUIC","host":"a","port":2}]`))
	f.Add([]byte(`{}`))
	many, _ := json.Marshal(slices.Repeat([]Way{{"TLS", "a", 1, ""}}, maxWays+1)) // it never fails
	f.Add(many)
	f.Fuzz(func(t *testing.T, text []byte) {
		got := Parse(text)
		if len(got) > maxWays {
			t.Errorf("%d ways", len(got))
		}
		for _, one := range got {
			if shown := fmt.Sprint(one.Kind, one.Host, one.Path); strings.ContainsAny(shown, "\x00\x1b\n\r \u0085\u2028") || one.Port < 1 || one.Port > 65535 {
				t.Errorf("%+v", one)
			}
		}
	})
}
