// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func TestEndpointSlice(t *testing.T) {
	origin := Origin{ClusterID: "rome-id", Reachable: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/24")}}
	s := &vkv1alpha1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: "web-1", UID: "shadow", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", labels.Origin: "milan-id",
		}},
		Spec: vkv1alpha1.ShadowEndpointSliceSpec{Template: vkv1alpha1.EndpointSliceTemplate{
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.1.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(true)}, NodeName: new("rome")},
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
	want := `"endpoints":[{"addresses":["10.1.0.5"],"conditions":{"ready":true},"nodeName":"rome"},{"addresses":["10.1.0.6"],"conditions":{"ready":false}},` +
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
	for _, one := range intent.Endpoints {
		if *one.Conditions.Ready {
			t.Errorf("%v is ready, and cannot be reached", one.Addresses)
		}
	}
	if intent, rejected = EndpointSlice(s, Origin{ClusterID: "rome-id"}); len(intent.Endpoints) > 0 || !strings.Contains(rejected, "no network is agreed") {
		t.Errorf("without agreed networks: %v, %s", intent.Endpoints, rejected)
	}
	if intent, _ = EndpointSlice(s, Origin{ClusterID: "rome-id", Anywhere: true}); len(intent.Endpoints) != 6 {
		t.Errorf("with networks that others joined: %d endpoints", len(intent.Endpoints))
	}
}

func TestNetworks(t *testing.T) {
	tunnel := &netv1alpha1.TunnelEndpoint{Spec: netv1alpha1.TunnelEndpointSpec{
		RemotePodCIDR: "10.200.0.0/16", RemoteNATPodCIDR: "10.1.0.0/16", RemoteExternalCIDR: "10.201.0.0/16", RemoteNATExternalCIDR: "None",
	}}
	got := Networks(tunnel)
	if len(got) != 2 || got[0].String() != "10.1.0.0/16" || got[1].String() != "10.201.0.0/16" {
		t.Errorf("got %v", got)
	}
	if len(Networks(nil))+len(Networks(&netv1alpha1.TunnelEndpoint{})) > 0 {
		t.Error("networks of nothing")
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
