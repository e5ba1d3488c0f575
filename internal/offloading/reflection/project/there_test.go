// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

func TestSelectsThere(t *testing.T) {
	denying := mapping
	denying.Skip.Labels = project.Keys{"internal", "team-*"}
	for name, row := range map[string]struct {
		mapping  project.NamespaceMapping
		selector map[string]string
		want     bool
	}{
		"a usual selector":                     {mapping, map[string]string{"app": "web"}, true},
		"keys of common tools":                 {mapping, map[string]string{"app.kubernetes.io/name": "web", "statefulset.kubernetes.io/pod-name": "web-0"}, true},
		"a key in a domain":                    {mapping, map[string]string{"app": "db", "db.example.com/role": "primary"}, false},
		"an operator's key":                    {mapping, map[string]string{"cnpg.io/instanceRole": "primary"}, false},
		"a key of the topology":                {mapping, map[string]string{"app": "web", "topology.kubernetes.io/zone": "a"}, false},
		"no selector":                          {mapping, nil, false},
		"a key that the user does not reflect": {denying, map[string]string{"internal": "x"}, false},
		"another key":                          {denying, map[string]string{"app": "x"}, true},
		"a prefix":                             {denying, map[string]string{"app": "x", "team-a": "y"}, false},
	} {
		if got := kinds.SelectsThere(row.mapping, &corev1.Service{Spec: corev1.ServiceSpec{Selector: row.selector}}); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

// TestEndpointsThere: endpoints that run in the peer are left to it, or sent by the name of their pod; never by an address, which would lead
// there and back through this cluster, if at all.
func TestEndpointsThere(t *testing.T) {
	pods := func(address netip.Addr) string { return map[string]string{"10.30.1.5": "web-0"}[address.String()] }
	found, unknown := kinds.There{Found: true, Pod: pods}, kinds.There{Pod: pods}
	ref := &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "1"}
	const byName = `{"conditions":{"ready":true},"targetRef":{"kind":"ShadowPod","namespace":"shop-rome-ab12cd","name":"web-0"}}`
	for name, row := range map[string]struct {
		there    kinds.There
		endpoint discoveryv1.Endpoint
		want     string
		mapped   int // addresses that need a mapping, or the address of which is one of the pod network
	}{
		"found there":               {found, discoveryv1.Endpoint{Addresses: []string{"10.30.1.5"}, NodeName: new("liqo-milan"), TargetRef: ref}, "", 0},
		"not found there":           {unknown, discoveryv1.Endpoint{Addresses: []string{"10.30.1.5"}, NodeName: new("liqo-milan"), TargetRef: ref}, byName, 0},
		"by hand, with its node":    {unknown, discoveryv1.Endpoint{Addresses: []string{"10.30.1.5"}, NodeName: new("liqo-milan")}, byName, 0},
		"by hand, its address only": {unknown, discoveryv1.Endpoint{Addresses: []string{"10.30.1.5"}}, byName, 0},
		"no pod has the address":    {unknown, discoveryv1.Endpoint{Addresses: []string{"10.30.1.9"}, NodeName: new("liqo-milan")}, "", 0},
		"of another namespace": {unknown, discoveryv1.Endpoint{
			Addresses: []string{"10.30.1.9"}, NodeName: new("liqo-milan"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "vault"},
		}, "", 0},
		"no pod": {unknown, discoveryv1.Endpoint{
			Addresses: []string{"10.30.1.9"}, NodeName: new("liqo-milan"),
			TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "web-0"},
		}, "", 0},
		"here, with an address of there": {
			unknown,
			discoveryv1.Endpoint{Addresses: []string{"10.10.1.5"}, NodeName: new("n1")},
			`{"addresses":["10.40.1.5"],"conditions":{"ready":true},"nodeName":"rome"}`, 1,
		},
		"at another peer": {
			unknown,
			discoveryv1.Endpoint{Addresses: []string{"10.10.2.5"}, NodeName: new("liqo-turin"), TargetRef: ref},
			`{"addresses":["10.40.2.5"],"conditions":{"ready":true},"targetRef":{"kind":"RemotePod","namespace":"shop","name":"web-0","uid":"1"},"nodeName":"rome"}`, 1,
		},
		"its name and hints": {unknown, discoveryv1.Endpoint{
			Addresses: []string{"10.30.1.5"}, Hostname: new("web-0"), NodeName: new("liqo-milan"), TargetRef: ref, Zone: new("a"),
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
		}, `{"conditions":{"ready":false,"serving":true,"terminating":true},"hostname":"web-0",` +
			`"targetRef":{"kind":"ShadowPod","namespace":"shop-rome-ab12cd","name":"web-0"},"hints":{"forZones":[{"name":"a"}]}}`, 0},
	} {
		local := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{row.endpoint}, Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}},
		}
		intent, err := kinds.ShadowEndpointSlice(mapping, local, row.there, swap{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if intent != nil {
			text, err := json.Marshal(intent.Spec.Template.Endpoints)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)[1 : len(text)-1]
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
		all := map[netip.Addr][]kinds.Port{}
		if kinds.Endpoints(mapping, local, row.there, all); len(all) != row.mapped {
			t.Errorf("%s: addresses for the peer %v, want %d", name, all, row.mapped)
		}
	}
}
