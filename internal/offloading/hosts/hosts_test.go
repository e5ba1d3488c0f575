// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// TestAttackNH3: a host meets every other one whose requests a controller could give to it.
func TestAttackNH3(t *testing.T) {
	for _, test := range []struct {
		asked, other string
		taken        bool
	}{
		{"a.example", "a.example", true},
		{"a.example", "b.example", false},
		{"a.example", "xa.example", false},
		{"a.b.example", "*.b.example", true},
		{"a.b.example", "*.example", false}, // a wildcard stands for one level
		{"b.example", "*.b.example", false},
		{"*.example", "a.example", true},
		{"*.example", "a.b.example", true}, // for some controllers, it stands for several
		{"*.example", "example", false},
		{"*.example", "*.example", true},
		{"*.example", "*.b.example", true},
		{"*.b.example", "*.example", false},
		{"*.b.example", "a.xb.example", false},
		{every, "a.example", true},
		{every, "*.example", true},
		{every, every, true},
		{every, rest, false},
		{rest, rest, true},
		{rest, every, true},
		{rest, "a.example", false},
		{"a.example", every, false}, // who has every host has named none
		{"a.example", rest, false},
		{"*.example", every, false},
	} {
		if _, _, taken := Taken([]string{"other.test", test.asked}, []string{test.other}); taken != test.taken {
			t.Errorf("%q and %q of another: taken %t, want %t", test.asked, test.other, taken, test.taken)
		}
	}
}

func TestOf(t *testing.T) {
	ingress := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{},
		Rules: []networkingv1.IngressRule{
			{Host: "B.example"},
			{},
			{Host: "b.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{}}},
		},
		TLS: []networkingv1.IngressTLS{{Hosts: []string{"c.example", "b.example"}}},
	}}
	want := []string{rest, every, "b.example", "c.example"}
	if got := Of(ingress); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := Trim(ingress); err != nil || !slices.Equal(Of(ingress), want) || ingress.Spec.Rules[2].HTTP != nil {
		t.Errorf("trimmed: %v, %+v", err, ingress.Spec)
	}
}
