// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"encoding/json"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestNetworkConfigIsCarriedWhole: the receiver checks the sender's signature over every field, so a field that is left behind on the way makes the whole
// invalid. The same holds for the signed answer.
func TestNetworkConfigIsCarriedWhole(t *testing.T) {
	rows := []netv1alpha1.Networks{{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16"}, {PodCIDR: "fd00:1::/48", ExternalCIDR: "fd00:2::/48"}}
	signed := []netv1alpha1.Signature{{PublicKey: "p", Value: "v"}, {PublicKey: "q", Value: "w"}}
	original := &netv1alpha1.NetworkConfig{Spec: netv1alpha1.NetworkConfigSpec{
		Cluster: netv1alpha1.ClusterIdentity{ClusterID: "id", ClusterName: "name"}, PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16", Networks: rows,
		AdditionalPodCIDRs: []netv1alpha1.CIDR{"fd00::/64"}, EndpointIP: "203.0.113.7", BackendType: "wireguard", BackendConfig: map[string]string{"port": "5871"},
		Lanes:   []netv1alpha1.Lane{{Number: 1, PublicKey: "k", Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{"203.0.113.7"}, Port: 5871}}}},
		Version: 7, Signatures: signed,
	}}
	for value, i := reflect.ValueOf(original.Spec), 0; i < value.NumField(); i++ {
		if value.Field(i).IsZero() {
			t.Errorf("this test does not know the field %s", value.Type().Field(i).Name)
		}
	}
	sent, err := json.Marshal(NetworkSpecIntent(original, Meta{name: "n", namespace: "here", labels: map[string]string{labels.OriginID: "id"}}))
	if err != nil {
		t.Fatal(err)
	}
	var copied netv1alpha1.NetworkConfig
	if err := json.Unmarshal(sent, &copied); err != nil || !equality.Semantic.DeepEqual(copied.Spec, original.Spec) {
		t.Errorf("carried %s, %v", sent, err)
	}
	original.Generation, copied.Generation = 3, 1
	copied.Status = netv1alpha1.NetworkConfigStatus{
		Processed: true, PodCIDRNAT: "10.5.0.0/16", ExternalCIDRNAT: "None", ObservedGeneration: 1,
		Signatures: signed, Networks: []netv1alpha1.NetworksNAT{
			{PodCIDRNAT: "10.5.0.0/16", ExternalCIDRNAT: "None"}, {PodCIDRNAT: "None", ExternalCIDRNAT: "None"},
		},
	}
	var answer netv1alpha1.NetworkConfigStatus
	statusOf(t, NetworkStatusIntent(original, &copied), &answer)
	want := copied.Status
	want.ObservedGeneration = 3
	if !equality.Semantic.DeepEqual(answer, want) {
		t.Errorf("answered %+v, want %+v", answer, want)
	}
}

// TestEarlierPeer: rows of networks that only repeat the fields are not sent to a cluster whose API may not know them, and its answer is one to what was sent.
func TestEarlierPeer(t *testing.T) {
	original := &netv1alpha1.NetworkConfig{Spec: netv1alpha1.NetworkConfigSpec{Cluster: netv1alpha1.ClusterIdentity{ClusterID: "id"}}}
	original.Spec.SetRows([]netv1alpha1.Networks{{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16"}})
	sent, err := json.Marshal(NetworkSpecIntent(original, Meta{name: "n", namespace: "here", labels: map[string]string{labels.OriginID: "id"}}))
	if err != nil {
		t.Fatal(err)
	}
	var copied netv1alpha1.NetworkConfig
	if err := json.Unmarshal(sent, &copied); err != nil || len(original.Spec.Networks) != 1 ||
		copied.Spec.Networks != nil || copied.Spec.PodCIDR != "10.1.0.0/16" {
		t.Fatalf("sent %s, %v", sent, err)
	}
	original.Generation, copied.Generation = 3, 1
	copied.Status = netv1alpha1.NetworkConfigStatus{Processed: true, ObservedGeneration: 1}
	copied.Status.SetRows([]netv1alpha1.NetworksNAT{{PodCIDRNAT: "10.5.0.0/16", ExternalCIDRNAT: "None"}})
	intent := NetworkStatusIntent(original, &copied)
	if intent == nil {
		t.Fatal("the answer to what was sent is not brought back")
	}
	var answer netv1alpha1.NetworkConfigStatus
	if statusOf(t, intent, &answer); answer.PodCIDRNAT != "10.5.0.0/16" || answer.Networks != nil {
		t.Errorf("answered %+v", answer)
	}
}
