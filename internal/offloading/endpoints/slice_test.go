// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/networks"
)

func TestEndpointSlice(t *testing.T) {
	origin := Origin{
		ClusterID: "rome-id", Node: "rome", Reachable: true,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/24")},
	}
	s := &vkv1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: "web-1", UID: "shadow", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", labels.Origin: "milan-id",
		}},
		Spec: vkv1alpha1.ShadowEndpointSliceSpec{Template: vkv1alpha1.EndpointSliceTemplate{
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}},
			Endpoints: []vkv1alpha1.Endpoint{
				{
					Addresses:  []string{"10.1.0.5"},
					Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(true)}, NodeName: new("rome"),
				},
				{Addresses: []string{"10.1.0.6"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
				{Addresses: []string{"10.2.0.7", "10.2.1.7"}, TargetRef: &corev1.ObjectReference{Kind: "RemotePod", Name: "p"}},
				// The API server, a node, the cloud's metadata, ourselves.
				{Addresses: []string{"10.96.0.1"}},
				{Addresses: []string{"192.168.1.10"}},
				{Addresses: []string{"169.254.169.254"}},
				{Addresses: []string{"::ffff:10.1.0.5"}},
				{Addresses: []string{"10.1.0.5%eth0"}},
				{Addresses: []string{"host.example"}},
				{Addresses: []string{strings.Repeat("x", 100000)}},
			},
		}},
	}
	intent, rejected := EndpointSlice(s, origin)
	text, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	want := `"endpoints":[{"addresses":["10.1.0.5"],"conditions":{"ready":true,"terminating":true},"nodeName":"rome"},` +
		`{"addresses":["10.1.0.6"],"conditions":{"ready":false,"serving":false}},` +
		`{"addresses":["10.2.0.7"],"conditions":{"ready":true},"targetRef":{"kind":"RemotePod","name":"p"}}]`
	if !strings.Contains(string(text), want) {
		t.Errorf("got %s\nwant %s", text, want)
	}
	if got := intent.Labels; got[discoveryv1.LabelManagedBy] != labels.EndpointSliceReflection || got[labels.ManagedBy] != "shadowendpointslice" ||
		got[labels.Origin] != "rome-id" || got[discoveryv1.LabelServiceName] != "web" {
		t.Errorf("labels %v", got)
	}
	if !strings.HasPrefix(rejected, "8 addresses are left out") || len(rejected) > 500 {
		t.Errorf("message: %s", rejected)
	}

	origin.Reachable = false
	intent, _ = EndpointSlice(s, origin)
	for _, made := range intent.Endpoints {
		if *made.Conditions.Ready || made.Conditions.Serving == nil || *made.Conditions.Serving {
			t.Errorf("%v is ready or serves, and cannot be reached", made.Addresses)
		}
	}
	if intent, rejected = EndpointSlice(s, Origin{ClusterID: "rome-id"}); len(intent.Endpoints) > 0 || !strings.Contains(rejected, "no network is agreed") {
		t.Errorf("without agreed networks: %v, %s", intent.Endpoints, rejected)
	}
}

// TestConditions: what a proxy here does with an endpoint is what it does where the endpoint is, whatever is left out, and nothing while it cannot be reached.
// What is usual takes no byte more than before.
func TestConditions(t *testing.T) {
	no, yes := new(false), new(true)
	for name, row := range map[string]struct {
		from            discoveryv1.EndpointConditions
		want, cutOff    string
		ready, fallback bool // kube-proxy sends requests to those that are ready and, if there are none, to those that serve while they terminate
	}{
		"ready": {
			discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: no},
			`{"ready":true}`, `{"ready":false,"serving":false}`, true,
			false,
		},
		"nothing is given":         {discoveryv1.EndpointConditions{}, `{"ready":true}`, `{"ready":false,"serving":false}`, true, false},
		"an older consumer, ready": {discoveryv1.EndpointConditions{Ready: yes}, `{"ready":true}`, `{"ready":false,"serving":false}`, true, false},
		"an older consumer, not ready": {
			discoveryv1.EndpointConditions{Ready: no}, `{"ready":false,"serving":false}`, `{"ready":false,"serving":false}`, false, false,
		},
		"starts": {
			discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: no},
			`{"ready":false,"serving":false}`,
			`{"ready":false,"serving":false}`, false, false,
		},
		"ends, and serves": {
			discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes},
			`{"ready":false,"serving":true,"terminating":true}`,
			`{"ready":false,"serving":false,"terminating":true}`, false, true,
		},
		"ends, and serves no more": {
			discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: yes},
			`{"ready":false,"serving":false,"terminating":true}`,
			`{"ready":false,"serving":false,"terminating":true}`, false, false,
		},
		"ends, serving is not given": {
			discoveryv1.EndpointConditions{Ready: no, Terminating: yes},
			`{"ready":false,"serving":false,"terminating":true}`,
			`{"ready":false,"serving":false,"terminating":true}`, false, false,
		},
		"published before it is ready": {
			discoveryv1.EndpointConditions{Ready: yes, Serving: no, Terminating: no},
			`{"ready":true,"serving":false}`,
			`{"ready":false,"serving":false}`, true, false,
		},
		"published while it terminates": {
			discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: yes},
			`{"ready":true,"terminating":true}`,
			`{"ready":false,"serving":false,"terminating":true}`, true, true,
		},
	} {
		for reachable, want := range map[bool]string{true: row.want, false: row.cutOff} {
			sent := Conditions(row.from, true) // by the consumer
			got := Conditions(sent, reachable) // by the provider
			if text, err := json.Marshal(got); err != nil || string(text) != want {
				t.Errorf("%s, reachable %v: %s, want %s", name, reachable, text, want)
			}
			ready, fallback := *got.Ready, (got.Serving == nil || *got.Serving) && got.Terminating != nil && *got.Terminating
			if ready != (row.ready && reachable) || fallback != (row.fallback && reachable) {
				t.Errorf("%s, reachable %v: ready %v, if there are no others %v", name, reachable, ready, fallback)
			}
		}
	}
}

// TestAttackM9: where another network joins the clusters, endpoints of a peer are those in the networks that the administrator wrote down, and never
// addresses of this cluster or of no host: with them the peer would send traffic of others to our nodes, API server and pods.
func TestAttackM9(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.1.0.9/32")}
	written := func(cidrs ...string) *discoveryv1alpha1.ForeignCluster {
		return &discoveryv1alpha1.ForeignCluster{Spec: discoveryv1alpha1.ForeignClusterSpec{Network: &discoveryv1alpha1.PeerNetwork{PodCIDRs: cidrs}}}
	}
	for name, row := range map[string]struct {
		fc   *discoveryv1alpha1.ForeignCluster
		own  []netip.Prefix
		want string
		left string
	}{
		"nothing written":   {&discoveryv1alpha1.ForeignCluster{}, own[:2], "", "spec.network.podCIDRs"},
		"no ForeignCluster": {nil, own[:2], "", "spec.network.podCIDRs"},
		"written":           {written("10.1.0.0/16", "fd00:1::/64"), own[:2], "10.1.0.5 10.1.0.9", "6 addresses"},
		"everything": {
			written("0.0.0.0/0", "::/0", "10.0.0.0/8", "10.96.0.0/12", "169.254.0.0/16", "127.0.0.0/8", "10.1.0.5/16", "x"), own[:2], "",
			"8 addresses",
		},
		"with our node": {written("10.1.0.0/16"), own, "", "8 addresses"},
	} {
		s := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: "web-1"}}
		s.Spec.Template.AddressType = discoveryv1.AddressTypeIPv4
		for _, address := range []string{"10.1.0.5", "10.1.0.9", "10.2.0.5", "10.200.0.5", "10.96.0.1", "127.0.0.1", "169.254.169.254", "0.0.0.0"} {
			s.Spec.Template.Endpoints = append(s.Spec.Template.Endpoints, vkv1alpha1.Endpoint{Addresses: []string{address}})
		}
		intent, left := EndpointSlice(s, Origin{ClusterID: "rome-id", External: true, Networks: networks.External(row.fc, row.own), Own: row.own})
		var got []string
		for _, made := range intent.Endpoints {
			got = append(got, made.Addresses...)
		}
		if strings.Join(got, " ") != row.want || !strings.Contains(left, row.left) {
			t.Errorf("%s: accepted %v, want %s; %s", name, got, row.want, left)
		}
	}
	// Our own addresses are no peer's where networks are agreed, too: a node may have got its address later.
	s := &vkv1alpha1.ShadowEndpointSlice{Spec: vkv1alpha1.ShadowEndpointSliceSpec{Template: vkv1alpha1.EndpointSliceTemplate{
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []vkv1alpha1.Endpoint{{Addresses: []string{"10.1.0.9"}}},
	}}}
	if intent, _ := EndpointSlice(s, Origin{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Own: own}); len(intent.Endpoints) > 0 {
		t.Errorf("our node is an endpoint of a peer: %v", intent.Endpoints)
	}
}

// TestAttackNL2: an endpoint of a peer names neither a node nor an object of this cluster. A load balancer would announce the Service from that node,
// and a mesh would take the endpoint for that pod.
func TestAttackNL2(t *testing.T) {
	ref := func(kind string) *corev1.ObjectReference {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: "bank", Name: "vault-0", UID: "u"}
	}
	const remote = `,"targetRef":{"kind":"RemotePod","namespace":"bank","name":"vault-0","uid":"u"}`
	for name, row := range map[string]struct {
		node string // of the Origin
		from vkv1alpha1.Endpoint
		want string
	}{
		"a node of ours":          {"rome", vkv1alpha1.Endpoint{NodeName: new("worker-1")}, ""},
		"a node named as he is":   {"", vkv1alpha1.Endpoint{NodeName: new("rome")}, ""},
		"an empty name":           {"", vkv1alpha1.Endpoint{NodeName: new("")}, ""},
		"himself":                 {"rome", vkv1alpha1.Endpoint{NodeName: new("rome")}, `,"nodeName":"rome"`},
		"a pod of ours":           {"rome", vkv1alpha1.Endpoint{TargetRef: ref("Pod")}, ""},
		"a node of ours, by kind": {"rome", vkv1alpha1.Endpoint{TargetRef: ref("Node")}, ""},
		"something, by no kind":   {"rome", vkv1alpha1.Endpoint{TargetRef: ref("")}, ""},
		"a pod of his":            {"rome", vkv1alpha1.Endpoint{TargetRef: ref("RemotePod")}, remote},
	} {
		row.from.Addresses = []string{"10.1.0.5"}
		s := &vkv1alpha1.ShadowEndpointSlice{Spec: vkv1alpha1.ShadowEndpointSliceSpec{Template: vkv1alpha1.EndpointSliceTemplate{
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []vkv1alpha1.Endpoint{row.from},
		}}}
		intent, _ := EndpointSlice(s, Origin{Node: row.node, Reachable: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
		got, err := json.Marshal(intent.Endpoints)
		if want := `[{"addresses":["10.1.0.5"],"conditions":{"ready":true}` + row.want + `}]`; err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestAttackH5: the API server does not look into endpoints, so a peer may write anything there. What is no endpoint is left out, and reported; the others
// remain, and reading never fails, since that would end the watch of all ShadowEndpointSlices.
func TestAttackH5(t *testing.T) {
	many, err := json.Marshal(slices.Repeat([]string{"10.1.0.7"}, maxAddresses+1))
	if err != nil {
		t.Fatal(err)
	}
	var s vkv1alpha1.ShadowEndpointSlice
	if err := json.Unmarshal([]byte(`{"spec":{"template":{"addressType":"IPv4","endpoints":[
		{"addresses":["10.1.0.5"],"zone":"a","unknown":{"x":[1]}}, {"addresses":"10.1.0.6"}, {"addresses":[{}]}, {}, {"addresses":[]}, {"addresses":["10.1.0.8"],"conditions":{"ready":"yes"}},
		{"addresses":`+string(many)+`}, {"addresses":["10.96.0.1"]}, {"addresses":["10.1.0.6"],"conditions":{}}]}}}`), &s); err != nil {
		t.Fatal(err)
	}
	intent, message := EndpointSlice(&s, Origin{ClusterID: "rome-id", Reachable: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	text, err := json.Marshal(intent.Endpoints)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"addresses":["10.1.0.5"],"conditions":{"ready":true},"zone":"a"},{"addresses":["10.1.0.6"],"conditions":{"ready":true}}]`; string(text) != want {
		t.Errorf("endpoints %s, want %s", text, want)
	}
	if !strings.HasPrefix(message, "1 addresses are left out") || !strings.Contains(message, "6 endpoints are left out") {
		t.Error(message)
	}
	again, err := json.Marshal(&s)
	if err != nil || !strings.Contains(string(again), `{"addresses":["10.1.0.5"],"conditions":{},"zone":"a"}`) {
		t.Errorf("written again: %s, %v", again, err)
	}
}

func TestReachable(t *testing.T) {
	of := func(pairs ...string) *discoveryv1alpha1.ForeignCluster {
		fc := &discoveryv1alpha1.ForeignCluster{}
		for i := 0; i < len(pairs); i += 2 {
			fc.Status.PeeringConditions = append(fc.Status.PeeringConditions, discoveryv1alpha1.PeeringCondition{
				Type: discoveryv1alpha1.PeeringConditionType(pairs[i]), Status: discoveryv1alpha1.PeeringConditionStatus(pairs[i+1]),
			})
		}
		return fc
	}
	for _, c := range []struct {
		fc   *discoveryv1alpha1.ForeignCluster
		want bool
	}{
		{nil, false},
		{of(), false},
		{of("NetworkStatus", "Established"), true},
		{of("NetworkStatus", "External"), true},
		{of("NetworkStatus", "Established", "APIServerStatus", "None"), true}, // no connection to it is needed
		{of("NetworkStatus", "Established", "APIServerStatus", "Established"), true},
		{of("NetworkStatus", "Established", "APIServerStatus", "Pending"), true}, // after a restart of ours
		{of("NetworkStatus", "Established", "APIServerStatus", "Error"), false},
		{of("NetworkStatus", "Pending"), false},
		{of("NetworkStatus", "Error", "APIServerStatus", "Established"), false},
	} {
		if got := Reachable(c.fc); got != c.want {
			t.Errorf("%+v: %v", c.fc, got)
		}
	}
}

// TestAttackH6SliceLabels: the labels of EndpointSlices obey the same rule.
func TestAttackH6SliceLabels(t *testing.T) {
	from := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "remote", Labels: map[string]string{
		discoveryv1.LabelServiceName: "web", "app": "web", "app.kubernetes.io/name": "web", corev1.IsHeadlessService: "",
		"multicluster.x-k8s.io/service-name": "theirs", "service.cilium.io/x": "y",
	}}}
	intent, _ := EndpointSlice(from, Origin{ClusterID: "rome-id"})
	want := []string{
		"app", "app.kubernetes.io/name", discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName, labels.ManagedBy, corev1.IsHeadlessService,
		labels.Origin,
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(intent.Labels))); diff != "" {
		t.Error(diff)
	}
}
