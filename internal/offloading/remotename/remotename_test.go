// SPDX-License-Identifier: Apache-2.0

package remotename

import (
	"strings"
	"testing"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

func TestRemoteName(t *testing.T) {
	rome := discoveryv1alpha1.ClusterIdentity{ClusterID: "rome-id", ClusterName: "rome"}
	longest := discoveryv1alpha1.ClusterIdentity{ClusterID: "x", ClusterName: strings.Repeat("c", 63)}
	long := strings.Repeat("n", 63)
	for name, test := range map[string]struct {
		namespace string
		strategy  offloadingv1alpha1.NamespaceMappingStrategy
		local     discoveryv1alpha1.ClusterIdentity
		want      string
	}{
		"as documented":          {"shop", offloadingv1alpha1.DefaultName, rome, "shop-rome-f4b52b"},
		"no strategy":            {"shop", "", rome, "shop-rome-f4b52b"},
		"the same":               {"shop", offloadingv1alpha1.EnforceSameName, rome, "shop"},
		"the same, long":         {long, offloadingv1alpha1.EnforceSameName, rome, long},
		"just fits":              {long[:51], offloadingv1alpha1.DefaultName, rome, long[:51] + "-rome-f4b52b"},
		"one too many":           {long[:52], offloadingv1alpha1.DefaultName, rome, long[:52] + "-717c4a5d53"},
		"much too long":          {long, offloadingv1alpha1.DefaultName, rome, long[:52] + "-ce7071d65c"},
		"cut at a hyphen":        {long[:51] + "-nnnnn", offloadingv1alpha1.DefaultName, rome, long[:51] + "-96a07406ed"},
		"long name of a cluster": {"a", offloadingv1alpha1.DefaultName, longest, "a-" + longest.ClusterName[:44] + "-2d7116"},
		"both long":              {long, offloadingv1alpha1.DefaultName, longest, long[:52] + "-3b995fd24e"},
	} {
		// The hashes are those of sha256sum, of namespace and cluster ID with a slash between them.
		if got := Of(test.namespace, test.strategy, test.local); got != test.want || len(got) > 63 {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
