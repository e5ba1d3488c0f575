// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"testing"
	"time"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/network/signature"
)

// TestVersion: the version of our announcement grows when its content changes, and only then, whatever a clock or another writer does.
func TestVersion(t *testing.T) {
	keys, err := clusterkey.Generate()
	if err != nil {
		t.Fatal(err)
	}
	others, _ := clusterkey.Generate()
	now := time.UnixMilli(5000)
	config := func(version int64, pods netv1alpha1.CIDR, by clusterkey.Keys) *netv1alpha1.NetworkConfig {
		config := &netv1alpha1.NetworkConfig{Spec: netv1alpha1.NetworkConfigSpec{PodCIDR: pods, Version: version}}
		config.Spec.Signatures = signature.Config(by, "rome-id", &config.Spec)
		return config
	}
	rotated := clusterkey.Keys{Current: others.Current, Previous: keys.Current}
	for name, row := range map[string]struct {
		before *netv1alpha1.NetworkConfig
		keys   clusterkey.Keys
		want   int64
	}{
		"first":                         {nil, keys, 5000},
		"same":                          {config(3000, "10.1.0.0/16", keys), keys, 3000},
		"same, rotated":                 {config(3000, "10.1.0.0/16", keys), rotated, 3000},
		"changed":                       {config(3000, "10.2.0.0/16", keys), keys, 5000},
		"changed, the clock is behind":  {config(9000, "10.2.0.0/16", keys), keys, 9001},
		"changed by another":            {config(1<<62, "10.1.0.0/16", others), keys, 5000},
		"not signed, as before upgrade": {&netv1alpha1.NetworkConfig{Spec: netv1alpha1.NetworkConfigSpec{PodCIDR: "10.1.0.0/16"}}, keys, 5000},
	} {
		spec := &netv1alpha1.NetworkConfigSpec{PodCIDR: "10.1.0.0/16"}
		Sign(row.keys, "rome-id", spec, row.before, now)
		if err := signature.CheckConfig(row.keys.Fingerprint(), "rome-id", spec); err != nil || spec.Version != row.want {
			t.Errorf("%s: version %d, want %d; %v", name, spec.Version, row.want, err)
		}
	}
}

// TestVersionStays: a cache that is behind does not bring back a version that is older than one that was announced, which the peer would refuse for ever.
func TestVersionStays(t *testing.T) {
	keys, err := clusterkey.Generate()
	if err != nil {
		t.Fatal(err)
	}
	var signed *netv1alpha1.NetworkConfigSpec
	announce := func(cached *netv1alpha1.NetworkConfig, pods netv1alpha1.CIDR, now int64) *netv1alpha1.NetworkConfig {
		spec := &netv1alpha1.NetworkConfigSpec{PodCIDR: pods}
		Sign(keys, "rome-id", spec, Latest(cached, signed), time.UnixMilli(now))
		signed = spec
		return &netv1alpha1.NetworkConfig{Spec: *spec}
	}
	first := announce(nil, "10.1.0.0/16", 170)
	for _, step := range []struct {
		cached *netv1alpha1.NetworkConfig
		pods   netv1alpha1.CIDR
		now    int64
		want   int64
	}{
		{nil, "10.1.0.0/16", 188, 170}, // the cache has nothing yet
		{first, "10.1.0.0/16", 190, 170},
		{first, "10.2.0.0/16", 200, 200},
		{first, "10.1.0.0/16", 210, 210}, // changed back, and the cache has still the first one
		{first, "10.1.0.0/16", 220, 210},
		{nil, "10.1.0.0/16", 230, 210},
	} {
		if now := announce(step.cached, step.pods, step.now); now.Spec.Version != step.want {
			t.Errorf("at %d: version %d, want %d", step.now, now.Spec.Version, step.want)
		}
	}
}

// TestUpgradeSignsNothing: what an earlier version announced without rows is announced with rows now, and stays as it is signed, so that no peer sees a change.
func TestUpgradeSignsNothing(t *testing.T) {
	keys, err := clusterkey.Generate()
	if err != nil {
		t.Fatal(err)
	}
	earlier := &netv1alpha1.NetworkConfigSpec{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16", BackendConfig: map[string]string{"publicKey": "k"}}
	Sign(keys, "rome-id", earlier, nil, time.UnixMilli(170))
	now := &netv1alpha1.NetworkConfigSpec{BackendConfig: map[string]string{"publicKey": "k"}}
	now.SetRows([]netv1alpha1.Networks{{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16"}})
	if Sign(keys, "rome-id", now, &netv1alpha1.NetworkConfig{Spec: *earlier}, time.UnixMilli(190)); now.Version != 170 ||
		now.Signatures[0] != earlier.Signatures[0] {
		t.Errorf("version %d, signatures %v; before %v", now.Version, now.Signatures, earlier.Signatures)
	}
}
