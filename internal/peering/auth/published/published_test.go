// SPDX-License-Identifier: Apache-2.0

package published

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

func node(name, address string, ready corev1.ConditionStatus) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
	}}
}

func TestURL(t *testing.T) {
	service := func(kind corev1.ServiceType, annotations map[string]string, balancer ...corev1.LoadBalancerIngress) corev1.Service {
		return corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-auth", Annotations: annotations},
			Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 443, NodePort: 30443}}},
			Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: balancer}},
		}
	}
	override := map[string]string{labels.OverrideAddress: "auth.example.org"}
	virtual := node("a-virtual", "10.0.0.9", corev1.ConditionTrue)
	virtual.Labels = map[string]string{labels.Type: labels.TypeVirtualNode}
	ingress := func(host, backend string) networkingv1.Ingress {
		return networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
			Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
				{Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: backend}}},
			}}},
		}}}}
	}
	for name, test := range map[string]struct {
		facts Facts
		want  string
		fails string
	}{
		"load balancer: hostname before address": {
			Facts{Service: service(corev1.ServiceTypeLoadBalancer, nil, corev1.LoadBalancerIngress{Hostname: "lb.example.org", IP: "192.0.2.1"})},
			"https://lb.example.org", "",
		},
		"load balancer: address": {
			Facts{Service: service(corev1.ServiceTypeLoadBalancer, nil, corev1.LoadBalancerIngress{IP: "192.0.2.1"})}, "https://192.0.2.1", "",
		},
		"load balancer: IPv6": {
			Facts{Service: service(corev1.ServiceTypeLoadBalancer, nil, corev1.LoadBalancerIngress{IP: "2001:db8::1"})}, "https://[2001:db8::1]", "",
		},
		"load balancer: pending, overridden": {
			Facts{Service: service(corev1.ServiceTypeLoadBalancer, override)}, "https://auth.example.org", "",
		},
		"override of both": {
			Facts{Service: service(corev1.ServiceTypeClusterIP, map[string]string{labels.OverrideAddress: "auth.example.org", labels.OverridePort: "8443"})},
			"https://auth.example.org:8443", "",
		},
		"override of the address keeps the node port": {
			Facts{Service: service(corev1.ServiceTypeNodePort, override), Nodes: []corev1.Node{node("n1", "10.0.0.1", corev1.ConditionTrue)}},
			"https://auth.example.org:30443", "",
		},
		"override of the port with nonsense": {
			Facts{Service: service(corev1.ServiceTypeClusterIP, map[string]string{labels.OverrideAddress: "a", labels.OverridePort: "70000"})}, "", "not a port number",
		},
		"node port: first Ready physical node": {
			Facts{Service: service(corev1.ServiceTypeNodePort, nil), Nodes: []corev1.Node{
				node("n3", "10.0.0.3", corev1.ConditionTrue), node("n2", "10.0.0.2", corev1.ConditionTrue), node("n1", "10.0.0.1", corev1.ConditionFalse), virtual,
			}},
			"https://10.0.0.2:30443", "",
		},
		"node port: no Ready node": {
			Facts{Service: service(corev1.ServiceTypeNodePort, nil), Nodes: []corev1.Node{node("n1", "10.0.0.1", corev1.ConditionUnknown)}},
			"",
			"none of the 1 nodes is Ready",
		},
		"ingress": {
			Facts{
				Service:   service(corev1.ServiceTypeClusterIP, nil),
				Ingresses: []networkingv1.Ingress{ingress("other.example.org", "shop"), ingress("auth.example.org", "liqo-auth")},
			},
			"https://auth.example.org", "",
		},
		"cluster IP alone": {Facts{Service: service(corev1.ServiceTypeClusterIP, nil)}, "", labels.OverrideAddress},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.facts.url()
			if got != test.want {
				t.Errorf("got %q (%v), want %q", got, err, test.want)
			}
			if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("got error %v, want one with %q", err, test.fails)
			}
		})
	}
	if _, err := (Facts{Service: service(corev1.ServiceTypeLoadBalancer, nil)}).url(); !errors.Is(err, ErrPending) {
		t.Errorf("load balancer without an address: %v", err)
	}
}
