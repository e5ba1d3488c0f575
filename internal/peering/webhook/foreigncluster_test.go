// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

func foreign(id, name, url string) *discoveryv1alpha1.ForeignCluster {
	fc := &discoveryv1alpha1.ForeignCluster{}
	fc.Spec.PeeringType, fc.Spec.ForeignAuthURL = discoveryv1alpha1.OutOfBand, url
	if id != "" || name != "" {
		fc.Spec.ClusterIdentity = &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}
	}
	return fc
}

func TestValidate(t *testing.T) {
	inBand := foreign("a", "milan", "https://10.0.0.1")
	inBand.Spec.PeeringType = discoveryv1alpha1.InBand
	for _, c := range []struct {
		name    string
		old, fc *discoveryv1alpha1.ForeignCluster
		want    string
	}{
		{"new", nil, foreign("a", "milan", "https://10.0.0.1:443"), ""},
		{"without identity", nil, foreign("", "", "https://milan.example"), ""},
		{"identity filled in", foreign("", "", "https://10.0.0.1"), foreign("a", "milan", "https://10.0.0.1"), ""},
		{"ID changed", foreign("a", "milan", "https://10.0.0.1"), foreign("b", "milan", "https://10.0.0.1"), "clusterID"},
		{"name changed", foreign("a", "milan", "https://10.0.0.1"), foreign("a", "turin", "https://10.0.0.1"), "clusterName"},
		{"identity taken away", foreign("a", "milan", "https://10.0.0.1"), foreign("", "", "https://10.0.0.1"), "clusterID"},
		{"type changed", foreign("a", "milan", "https://10.0.0.1"), inBand, "peeringType"},
		{"own cluster", nil, foreign("me", "rome", "https://10.0.0.1"), "the ID of this cluster"},
		{"name not a label", nil, foreign("a", "Milan_1", "https://10.0.0.1"), "DNS-1123"},
		{"a proxy", nil, behind("http://proxy:3128"), ""},
		{"a proxy without scheme", nil, behind("proxy:3128"), "foreignProxyUrl"},
		{"a proxy that was there before", behind("proxy:3128"), behind("proxy:3128"), ""},
		{"plain http", nil, foreign("a", "milan", "http://10.0.0.1"), "foreignAuthUrl"},
		{"no host", nil, foreign("a", "milan", "https://"), "foreignAuthUrl"},
		{"password", nil, foreign("a", "milan", "https://u:p@10.0.0.1"), "foreignAuthUrl"},
	} {
		if have := validate(c.old, c.fc, "me"); (have == "") != (c.want == "") || !strings.Contains(have, c.want) {
			t.Errorf("%s: %q, want %q", c.name, have, c.want)
		}
	}
}

func TestMutate(t *testing.T) {
	fc := foreign("a", "milan", "https://10.0.0.1")
	if !mutate(fc) || fc.Labels[labels.ClusterID] != "a" || fc.Labels[labels.DiscoveryType] != labels.DiscoveryManual {
		t.Errorf("labels %v", fc.Labels)
	}
	if mutate(fc) {
		t.Error("a second time changes something")
	}
}

func behind(proxy string) *discoveryv1alpha1.ForeignCluster {
	fc := foreign("a", "milan", "https://10.0.0.1")
	fc.Spec.ForeignProxyURL = proxy
	return fc
}
