// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestConfig: a pod gets what its kubelet would give it at home, with our name server; a pod with settings of its own keeps them.
func TestConfig(t *testing.T) {
	settings := Settings{Server: netip.MustParseAddr("10.96.0.77"), Domain: "milan.example", Searches: []string{"compute.internal"}}
	place := Place{Domain: "cluster.local", Namespace: "shop", Remote: "shop-rome-faf7bb"}
	const usual = "10.96.0.77 | shop.svc.cluster.local svc.cluster.local cluster.local shop-rome-faf7bb.svc.milan.example compute.internal"
	config := func(servers, searches string, options ...corev1.PodDNSConfigOption) *corev1.PodDNSConfig {
		return &corev1.PodDNSConfig{Nameservers: strings.Fields(servers), Searches: strings.Fields(searches), Options: options}
	}
	at := func(dns ...string) Place {
		with := place
		with.DNS = dns
		return with
	}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("d%d.example", i))
	}
	for _, c := range []struct {
		name     string
		settings Settings
		place    Place
		policy   corev1.DNSPolicy
		own      *corev1.PodDNSConfig
		want     string // empty: as it was
	}{
		{"default", settings, place, "", nil, usual + " | ndots:5"},
		{"ClusterFirst", settings, place, corev1.DNSClusterFirst, nil, usual + " | ndots:5"},
		{"ClusterFirstWithHostNet", settings, place, corev1.DNSClusterFirstWithHostNet, nil, usual + " | ndots:5"},
		{
			"own additions", settings, place, corev1.DNSClusterFirst,
			config(
				"1.1.1.1 10.96.0.77 2.2.2.2 3.3.3.3", "example.com cluster.local", corev1.PodDNSConfigOption{Name: "ndots", Value: new("2")},
				corev1.PodDNSConfigOption{Name: "edns0"},
			),
			"10.96.0.77 1.1.1.1 2.2.2.2 | shop.svc.cluster.local svc.cluster.local cluster.local shop-rome-faf7bb.svc.milan.example compute.internal " +
				"example.com | ndots:2 edns0",
		},
		{"too many domains", settings, place, corev1.DNSClusterFirst, config("", strings.Join(many, " ")), usual + " " + strings.Join(many[:27], " ") + " | ndots:5"},
		{
			"too long domains", settings, place, corev1.DNSClusterFirst, config("", strings.Repeat("x", 1900)+" "+strings.Repeat("y", 60)),
			usual + " " + strings.Repeat("x", 1900) + " | ndots:5",
		},
		{
			"the same names in both clusters",
			Settings{Server: settings.Server, Domain: "cluster.local"},
			Place{Domain: "cluster.local", Namespace: "shop", Remote: "shop"},
			"", nil,
			"10.96.0.77 | shop.svc.cluster.local svc.cluster.local cluster.local | ndots:5",
		},
		{
			"the DNS of its own cluster by address", settings, at("10.80.0.10", "169.254.20.10"), corev1.DNSNone,
			config("169.254.20.10 10.80.0.10 1.1.1.1", "shop.svc.cluster.local example.com", corev1.PodDNSConfigOption{Name: "ndots", Value: new("3")}),
			"10.96.0.77 1.1.1.1 | shop.svc.cluster.local example.com | ndots:3",
		},
		{
			"the same beside the usual settings", settings, at("10.80.0.10"), corev1.DNSClusterFirst, config("10.80.0.10 1.1.1.1", ""),
			"10.96.0.77 1.1.1.1 | " + strings.TrimPrefix(usual, "10.96.0.77 | ") + " | ndots:5",
		},
		{"another DNS by address", settings, at("10.80.0.10"), corev1.DNSNone, config("10.96.0.10", "example.com"), ""},
		{
			"the DNS of its own cluster, without a name server here",
			Settings{Domain: "cluster.local"},
			at("10.80.0.10"), corev1.DNSNone,
			config("10.80.0.10", "example.com"), "",
		},
		{"None", settings, place, corev1.DNSNone, config("1.1.1.1", "example.com"), ""},
		{"Default", settings, place, corev1.DNSDefault, nil, ""},
		{"no name server", Settings{Domain: "cluster.local"}, place, "", nil, ""},
		{"a domain of its own that is not known", Settings{Server: settings.Server}, place, "", nil, ""},
		{"a consumer without a domain", settings, Place{Namespace: "shop", Remote: "shop"}, "", nil, ""},
		{"another namespace", settings, Place{Domain: "cluster.local", Remote: "shop"}, "", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := corev1.PodSpec{DNSPolicy: c.policy, DNSConfig: c.own}
			before := spec.DeepCopy()
			c.settings.Configure(&spec, c.place)
			if c.want == "" {
				if diff := cmp.Diff(*before, spec); diff != "" {
					t.Errorf("changed: %s", diff)
				}
				return
			}
			if c.own != nil && cmp.Diff(before.DNSConfig, c.own) != "" {
				t.Error("the configuration of the ShadowPod was changed")
			}
			if diff := cmp.Diff(c.want, text(spec.DNSConfig)); spec.DNSPolicy != corev1.DNSNone || diff != "" {
				t.Errorf("policy %s: %s", spec.DNSPolicy, diff)
			}
		})
	}
}

func text(config *corev1.PodDNSConfig) string {
	var options []string
	for _, podDNSConfigOption := range config.Options {
		option := podDNSConfigOption.Name
		if podDNSConfigOption.Value != nil {
			option += ":" + *podDNSConfigOption.Value
		}
		options = append(options, option)
	}
	return strings.Join(config.Nameservers, " ") + " | " + strings.Join(config.Searches, " ") + " | " + strings.Join(options, " ")
}
