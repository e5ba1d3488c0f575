// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"

	discoveryv1 "k8s.io/api/discovery/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// exponents matches numbers that take minutes to parse as a quantity.
var exponents = regexp.MustCompile(`[0-9][eE][+-]?[0-9]{3,}`)

// FuzzEndpointSlice: whatever a peer writes, no endpoint leads out of the networks agreed with it, and the peer sets none of our labels.
func FuzzEndpointSlice(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"spec":{"template":{"addressType":"IPv4","endpoints":[{"addresses":["10.1.0.5","10.2.0.7"],"conditions":{"ready":true,` +
			`"serving":true,"terminating":true}}],"ports":[{"port":80}]}}}`,
		`{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"x","` + labels.Origin +
			`":"milan-id"}},"spec":{"template":{"addressType":"IPv4","endpoints":[{"addresses":["169.254.169.254","::ffff:10.1.0.5","10.1.0.5%eth0",` +
			`"010.1.0.5","host"]}]}}}`,
		`{"spec":{"template":{"addressType":"IPv6","endpoints":[{"addresses":["fd00::1","fd00:1::1","10.1.0.5"],"targetRef":{},"hints":{}},null]}}}`,
		`{"spec":{"template":{"addressType":"IPv4","endpoints":[{"targetRef":{"kind":"ShadowPod","name":"web-0"},"addresses":["10.200.1.9"],` +
			`"conditions":{"ready":false,"serving":true,"terminating":true},"hints":{"forNodes":[{"name":"x"}]}},{"targetRef":{"kind":"ShadowPod","name":"vault"}}]}}}`,
		`{"spec":{"template":{"addressType":"FQDN","endpoints":[{"addresses":["kubernetes.default.svc","10.1.0.5"]}]}}}`,
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	networks := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	f.Fuzz(func(t *testing.T, text string, reachable bool) {
		var shadow vkv1alpha1.ShadowEndpointSlice
		if exponents.MatchString(text) || json.Unmarshal([]byte(text), &shadow) != nil {
			return
		}
		own := OwnPod{UID: "u", Node: "n1", IPs: []string{"10.200.1.5", "fd00:2::5"}, Ready: true}
		intent, message := EndpointSlice(&shadow, Origin{ClusterID: "rome-id", Reachable: reachable, Networks: networks, Pods: map[string]OwnPod{"web-0": own}})
		if len(message) > 3000 || !utf8.ValidString(message) {
			t.Fatalf("message %q", message)
		}
		if len(intent.Endpoints) > maxEndpoints {
			t.Fatalf("%d endpoints", len(intent.Endpoints))
		}
		for _, made := range intent.Endpoints {
			if made.TargetRef != nil && made.TargetRef.Kind != nil && *made.TargetRef.Kind == "Pod" { // one of the peer's here: with its own address, node and name only
				if len(made.Addresses) != 1 || !slices.Contains(own.IPs, made.Addresses[0]) ||
					*made.TargetRef.Name != "web-0" || *made.NodeName != own.Node || made.Conditions.Ready == nil {
					t.Fatalf("endpoint of a pod here %+v", made)
				}
				continue
			}
			if len(made.Addresses) == 0 || made.Conditions.Ready == nil || *made.Conditions.Ready && !reachable ||
				!reachable && (made.Conditions.Serving == nil || *made.Conditions.Serving) {
				t.Fatalf("endpoint %+v", made)
			}
			for _, text := range made.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil || !slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(address) }) ||
					address.Is4() != (*intent.AddressType == discoveryv1.AddressTypeIPv4) {
					t.Fatalf("address %q of type %s: %v", text, *intent.AddressType, err)
				}
			}
		}
		for key, want := range map[string]string{
			discoveryv1.LabelManagedBy: labels.EndpointSliceReflection, labels.ManagedBy: labels.ManagedByShadowEndpointSlice, labels.Origin: "rome-id",
		} {
			if intent.Labels[key] != want {
				t.Fatalf("label %s is %q", key, intent.Labels[key])
			}
		}
	})
}
