// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"crypto/ed25519"
	"strings"
	"testing"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// TestAttackH2: a stolen token does not suffice to register under the ID of a cluster that this one uses.
func TestAttackH2(t *testing.T) {
	public := func(seed byte) ed25519.PublicKey {
		private := ed25519.NewKeyFromSeed(append(make([]byte, 31), seed))
		return private.Public().(ed25519.PublicKey)
	}
	provider := func(fingerprint string) *discoveryv1alpha1.ForeignCluster {
		return &discoveryv1alpha1.ForeignCluster{Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterKey: fingerprint}}
	}
	limits := Limits{Total: 3, PerToken: 2}
	for name, c := range map[string]struct {
		fc         *discoveryv1alpha1.ForeignCluster
		tokenID    string
		registered registrations
		limits     Limits
		want       string
	}{
		"a cluster that is not known":      {},
		"a consumer that comes back":       {fc: provider("")},
		"our provider, with its key":       {fc: provider(clusterkey.Fingerprint(public(1)))},
		"our provider, with another key":   {fc: provider(clusterkey.Fingerprint(public(2))), want: "by another key"},
		"the last one":                     {tokenID: "t", registered: registrations{2, 1}, limits: limits},
		"one too many":                     {registered: registrations{3, 0}, limits: limits, want: "no more than 3"},
		"one too many with this token":     {tokenID: "t", registered: registrations{2, 2}, limits: limits, want: "no more than 2 may"},
		"without a token, where it is off": {registered: registrations{2, 2}, limits: limits},
		"no limits":                        {tokenID: "t", registered: registrations{1000, 1000}},
	} {
		pin := &auth.Pin{ClusterKey: public(1), TokenID: c.tokenID}
		if got := admissionRefusal(pin, c.fc, c.registered, c.limits); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
