// SPDX-License-Identifier: Apache-2.0

package standby

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// service is that of our name server.
func service(address string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-dns", UID: "uid"},
		Spec: corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{
			{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
		}},
	}
}

// dns is a slice of the DNS of a cluster: addresses of which those with an exclamation mark are not ready, and those with a minus end; and its port.
func dns(port int32, addresses string) discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{
		{Name: new("metrics"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(9153))},
		{Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(port)},
		{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(port)},
	}}
	if strings.Contains(addresses, ":") {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, address := range strings.Fields(addresses) {
		endpoint := discoveryv1.Endpoint{Addresses: []string{strings.TrimRight(address, "!-")}}
		endpoint.Conditions.Ready = new(!strings.HasSuffix(address, "!") && !strings.HasSuffix(address, "-"))
		endpoint.Conditions.Terminating = new(strings.HasSuffix(address, "-"))
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

// TestPlan: the endpoints of the cluster's DNS are those that kube-proxy uses if there is no other, at the ports of our Service.
func TestPlan(t *testing.T) {
	sctp := dns(53, "10.0.0.1")
	sctp.Ports = sctp.Ports[:2] // no TCP
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("10.0.1.%d", i))
	}
	for name, c := range map[string]struct {
		address string
		from    []discoveryv1.EndpointSlice
		want    string
	}{
		"usual":     {"10.96.0.77", []discoveryv1.EndpointSlice{dns(53, "10.0.0.2 10.0.0.1")}, "IPv4 dns=53 dns-tcp=53: 10.0.0.1 10.0.0.2"},
		"OpenShift": {"10.96.0.77", []discoveryv1.EndpointSlice{dns(5353, "10.0.0.1")}, "IPv4 dns=5353 dns-tcp=5353: 10.0.0.1"},
		"two slices": {
			"10.96.0.77",
			[]discoveryv1.EndpointSlice{dns(53, "10.0.0.2"), dns(53, "10.0.0.1 10.0.0.2")},
			"IPv4 dns=53 dns-tcp=53: 10.0.0.1 10.0.0.2",
		},
		"another port":        {"10.96.0.77", []discoveryv1.EndpointSlice{dns(53, "10.0.0.2"), dns(54, "10.0.0.1")}, "IPv4 dns=53 dns-tcp=53: 10.0.0.2"},
		"one starts":          {"10.96.0.77", []discoveryv1.EndpointSlice{dns(53, "10.0.0.2! 10.0.0.1")}, "IPv4 dns=53 dns-tcp=53: 10.0.0.1"},
		"all start, one ends": {"10.96.0.77", []discoveryv1.EndpointSlice{dns(53, "10.0.0.2! 10.0.0.1! 10.0.0.3-")}, "IPv4 dns=53 dns-tcp=53: 10.0.0.1 10.0.0.2"},
		"all end":             {"10.96.0.77", []discoveryv1.EndpointSlice{dns(53, "10.0.0.2-")}, ""},
		"IPv6":                {"fd00::77", []discoveryv1.EndpointSlice{dns(53, "10.0.0.2"), dns(53, "fd00::1")}, "IPv6 dns=53 dns-tcp=53: fd00::1"},
		"no TCP":              {"10.96.0.77", []discoveryv1.EndpointSlice{sctp}, ""},
		"none":                {"10.96.0.77", nil, ""},
		"very many":           {"10.96.0.77", []discoveryv1.EndpointSlice{dns(53, strings.Join(many, " "))}, "100"},
	} {
		got := ""
		if intent := plan(service(c.address), c.from); intent != nil {
			var addresses []string
			for _, endpoint := range intent.Endpoints {
				addresses = append(addresses, endpoint.Addresses...)
				if *endpoint.Conditions.Ready || !*endpoint.Conditions.Serving || !*endpoint.Conditions.Terminating {
					t.Errorf("%s: %s would be used beside our pods", name, endpoint.Addresses)
				}
			}
			got = string(*intent.AddressType)
			for _, port := range intent.Ports {
				got += fmt.Sprintf(" %s=%d", *port.Name, *port.Port)
			}
			got += ": " + strings.Join(addresses, " ")
			if len(addresses) > 10 {
				got = fmt.Sprint(len(addresses))
			}
			if intent.Labels[discoveryv1.LabelServiceName] != "liqo-dns" || *intent.OwnerReferences[0].UID != "uid" {
				t.Errorf("%s: the slice is not that of the Service: %v", name, intent.Labels)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if addressOf(service("None")).IsValid() || addressOf(nil).IsValid() {
		t.Error("a Service without an address has one")
	}
}
