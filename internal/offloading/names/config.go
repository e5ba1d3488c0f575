// SPDX-License-Identifier: Apache-2.0

package names

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The bounds that Kubernetes sets for a pod. A kubelet cuts longer lists, too.
const maxServers, maxSearches, maxSearchChars = 3, 32, 2048

// Settings are what pods of peers get.
type Settings struct {
	// Server is the address of our name server.
	Server netip.Addr
	// Domain is that of this cluster, and Searches are the search domains of its nodes.
	Domain   string
	Searches []string
}

// Place is where a pod runs, and where it belongs.
type Place struct {
	// Domain and Namespace are those of the consumer, Remote is the namespace in this cluster.
	Domain, Namespace, Remote string
	// DNS are the addresses by which the pod names the DNS of the consumer.
	DNS []string
}

// Configure gives a pod the DNS settings that it would have at home, with our name server: what a kubelet does for the policy ClusterFirst, in which the pod's
// own dnsConfig is added. Pods with another policy keep theirs. Where a pod names the DNS of its own cluster by address, it gets our name server.
func (s Settings) Configure(spec *corev1.PodSpec, at Place) {
	spec.DNSConfig = s.instead(spec.DNSConfig, at.DNS)
	first := spec.DNSPolicy == "" || spec.DNSPolicy == corev1.DNSClusterFirst || spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet
	if !first || !s.Server.IsValid() || s.Domain == "" || at.Domain == "" || at.Namespace == "" {
		return
	}
	var own corev1.PodDNSConfig
	if spec.DNSConfig != nil {
		own = *spec.DNSConfig
	}
	// The remote namespace comes last: if our name server is down, that of this cluster answers, which knows a Service only there.
	searches := slices.Concat([]string{
		at.Namespace + ".svc." + at.Domain, "svc." + at.Domain, at.Domain, at.Remote + ".svc." + s.Domain,
	}, s.Searches, own.Searches)
	spec.DNSPolicy = corev1.DNSNone
	spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: shortest(unique(append([]string{s.Server.String()}, own.Nameservers...)), maxServers),
		Searches:    fitting(unique(searches)),
		Options:     merged([]corev1.PodDNSConfigOption{{Name: "ndots", Value: new("5")}}, own.Options),
	}
}

// instead returns a configuration in which our name server stands for the DNS of the consumer.
func (s Settings) instead(own *corev1.PodDNSConfig, home []string) *corev1.PodDNSConfig {
	if own == nil || !s.Server.IsValid() || !slices.ContainsFunc(own.Nameservers, func(server string) bool { return slices.Contains(home, server) }) {
		return own
	}
	config := own.DeepCopy()
	for i, nameserver := range config.Nameservers {
		if slices.Contains(home, nameserver) {
			config.Nameservers[i] = s.Server.String()
		}
	}
	config.Nameservers = unique(config.Nameservers)
	return config
}

// unique drops what is there already.
func unique(all []string) (kept []string) {
	for _, name := range all {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

func shortest(all []string, most int) []string { return all[:min(len(all), most)] }

// fitting returns the first search domains that fit.
func fitting(all []string) []string {
	chars := -1
	for i, search := range all {
		if chars += len(search) + 1; chars > maxSearchChars || i == maxSearches {
			return all[:i]
		}
	}
	return all
}

// merged returns options of which the later ones count.
func merged(options, own []corev1.PodDNSConfigOption) []corev1.PodDNSConfigOption {
	for _, option := range own {
		at := slices.IndexFunc(options, func(other corev1.PodDNSConfigOption) bool { return other.Name == option.Name })
		if at >= 0 {
			options[at] = option
			continue
		}
		options = append(options, option)
	}
	return options
}
