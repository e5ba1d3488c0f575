// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name string, ready bool, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: map[bool]corev1.ConditionStatus{true: "True", false: "Unknown"}[ready]}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeExternalIP, Address: "198.51.100.1"}}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

func TestNodeAddress(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []corev1.Node
		want  string
	}{
		{"none", nil, ""},
		{"one", []corev1.Node{node("a", true, "10.0.0.1")}, "https://10.0.0.1:6443"},
		{"not ready", []corev1.Node{node("a", false, "10.0.0.1")}, "https://10.0.0.1:6443"},
		{"ready first", []corev1.Node{node("a", false, "10.0.0.1"), node("b", true, "10.0.0.2")}, "https://10.0.0.2:6443"},
		{"by name", []corev1.Node{node("c", true, "10.0.0.3"), node("b", true, "10.0.0.2")}, "https://10.0.0.2:6443"},
		{"without address", []corev1.Node{node("a", true), node("b", false, "10.0.0.2")}, "https://10.0.0.2:6443"},
		{"IPv6", []corev1.Node{node("a", true, "2001:db8::1")}, "https://[2001:db8::1]:6443"},
		{"two families", []corev1.Node{node("a", true, "10.0.0.1", "2001:db8::1")}, "https://10.0.0.1:6443"},
	} {
		if got, err := nodeAddress(c.nodes); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}
