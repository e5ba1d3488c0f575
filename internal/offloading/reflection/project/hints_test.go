// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryapply "k8s.io/client-go/applyconfigurations/discovery/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/endpoints"
	"liqo.io/liqo/internal/offloading/kinds"
)

// TestHints: endpoints of the consumer never keep a proxy of the provider from all endpoints, and never from those of its own zone or node.
func TestHints(t *testing.T) {
	type end struct{ name, zone, node string } // the hints of an endpoint
	for name, row := range map[string]struct {
		here, there []end // of the consumer, of the provider
		node, zone  string
		want        string
		near        bool // the Service asks for it
	}{
		"no hints":                              {[]end{{"here", "", ""}}, []end{{"there", "", ""}}, "n1", "z1", "here there", false},
		"zones of other names, own endpoints":   {[]end{{"here", "a", ""}}, []end{{"there", "z1", ""}}, "n1", "z1", "there", false},
		"zones of other names, none of its own": {[]end{{"here", "a", ""}}, []end{{"there", "z1", ""}}, "n2", "z2", "here there", false},
		"only the consumer has endpoints":       {[]end{{"here", "a", ""}}, nil, "n1", "z1", "here", false},
		"zones of the same names":               {[]end{{"here", "z1", ""}, {"far", "z2", ""}}, []end{{"there", "z1", ""}}, "n1", "z1", "here there", false},
		"the same node, as PreferSameNode asks": {[]end{{"here", "a", "n1"}}, []end{{"there", "z1", "n1"}, {"near", "z1", "n2"}}, "n1", "z1", "there", false},
		"no endpoint on the node, some in the zone": {
			[]end{{"here", "a", "n1"}},
			[]end{{"there", "z1", "n1"}, {"near", "z1", "n2"}},
			"n3", "z1", "near there",
			false,
		},
		"no endpoint on the node or in the zone":        {[]end{{"here", "a", "n1"}}, []end{{"there", "z1", "n1"}}, "n4", "z4", "here there", false},
		"the consumer has a node of the same name":      {[]end{{"here", "a", "n1"}}, nil, "n1", "z1", "here", false},
		"the consumer's nodes have no zones":            {[]end{{"here", "", ""}}, []end{{"there", "z1", ""}}, "n1", "z1", "here there", false},
		"the consumer's nodes have no zones, but names": {[]end{{"here", "", "n1"}}, []end{{"there", "", "n1"}, {"near", "", "n2"}}, "n2", "z1", "near", false},
		"no zones at home, and near is asked for":       {[]end{{"here", "", ""}}, []end{{"there", "z1", ""}}, "n1", "z1", "there", true},
		"the same, in a zone without an endpoint":       {[]end{{"here", "", ""}}, []end{{"there", "z1", ""}}, "n2", "z2", "here there", true},
		"no zones anywhere, and near is asked for":      {[]end{{"here", "", ""}}, []end{{"there", "", ""}}, "n1", "z1", "here there", true},
		"zones at home, and near is asked for":          {[]end{{"here", "z1", ""}}, []end{{"there", "z1", ""}}, "n1", "z1", "here there", true},
	} {
		local := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		}
		names := map[string]string{}
		of := func(one end, address string) discoveryv1.Endpoint {
			names[address] = one.name
			made := discoveryv1.Endpoint{Addresses: []string{address}}
			if one.zone+one.node != "" {
				made.Hints = &discoveryv1.EndpointHints{}
			}
			if one.zone != "" {
				made.Hints.ForZones = []discoveryv1.ForZone{{Name: one.zone}}
			}
			if one.node != "" {
				made.Hints.ForNodes = []discoveryv1.ForNode{{Name: one.node}}
			}
			return made
		}
		for i, one := range row.here {
			made := of(one, fmt.Sprintf("10.10.1.%d", i+1))
			names[fmt.Sprintf("10.40.1.%d", i+1)] = one.name
			local.Endpoints = append(local.Endpoints, made)
		}
		all := received(t, local, kinds.There{Found: true, Near: row.near})
		for i, one := range row.there {
			all = append(all, of(one, fmt.Sprintf("10.30.1.%d", i+1)))
		}
		var got []string
		for _, address := range chosen(all, row.node, row.zone) {
			got = append(got, names[address])
		}
		slices.Sort(got)
		if strings.Join(got, " ") != row.want {
			t.Errorf("%s: a proxy on node %s in zone %s chooses %v, want %s", name, row.node, row.zone, got, row.want)
		}
	}
}

// received returns the endpoints in the provider's EndpointSlice for a slice of the consumer.
func received(t *testing.T, local *discoveryv1.EndpointSlice, there kinds.There) (all []discoveryv1.Endpoint) {
	t.Helper()
	sent, err := kinds.ShadowEndpointSlice(mapping, local, there, swap{})
	if err != nil {
		t.Fatal(err)
	}
	var arrived vkv1alpha1.ShadowEndpointSlice
	reread(t, sent, &arrived)
	intent, left := endpoints.EndpointSlice(&arrived, endpoints.Origin{
		ClusterID: mapping.LocalID, Node: mapping.LocalName, Reachable: true,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16")},
	})
	if left != "" {
		t.Fatal(left)
	}
	slice := discoveryv1.EndpointSlice{}
	reread(t, discoveryapply.EndpointSlice("", "").WithEndpoints(pointers(intent.Endpoints)...), &slice)
	return slice.Endpoints
}

func pointers[T any](all []T) (to []*T) {
	for i := range all {
		to = append(to, &all[i])
	}
	return to
}

func reread(t *testing.T, from, into any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// chosen returns the addresses to which kube-proxy sends requests by the hints of ready endpoints: those for its node if all have hints for nodes and some are
// for its own, otherwise those for its zone by the same rule, otherwise all.
func chosen(all []discoveryv1.Endpoint, node, zone string) (addresses []string) {
	forNode := func(one discoveryv1.Endpoint) (hinted, own bool) {
		return one.Hints != nil && len(one.Hints.ForNodes) > 0, one.Hints != nil && slices.Contains(one.Hints.ForNodes, discoveryv1.ForNode{Name: node})
	}
	forZone := func(one discoveryv1.Endpoint) (hinted, own bool) {
		return one.Hints != nil && len(one.Hints.ForZones) > 0, one.Hints != nil && slices.Contains(one.Hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	for _, hint := range []func(discoveryv1.Endpoint) (hinted, own bool){forNode, forZone} {
		everyOne, of := true, []string(nil)
		for _, one := range all {
			hinted, own := hint(one)
			everyOne = everyOne && hinted
			if own {
				of = append(of, one.Addresses[0])
			}
		}
		if everyOne && len(of) > 0 {
			return of
		}
	}
	for _, one := range all {
		addresses = append(addresses, one.Addresses[0])
	}
	return addresses
}
