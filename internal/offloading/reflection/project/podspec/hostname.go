// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// mostHostname is how long a name may be that a kubelet gives a pod without cutting it.
const mostHostname = 63

// nameHost gives a pod that asks for its full name as the name of its host the one that it has here. The kubelet of the peer would give
// it the name of the remote namespace, and not start it if that is too long. Kubernetes before 1.35 ignores the field: there the host has
// the short name. The DNS records of the pod stay.
func nameHost(m project.NamespaceMapping, local *corev1.Pod, spec *corev1.PodSpec) {
	if spec.SetHostnameAsFQDN == nil || !*spec.SetHostnameAsFQDN || spec.Subdomain == "" || spec.HostnameOverride != nil {
		return
	}
	full := cmp.Or(spec.Hostname, local.Name) + "." + spec.Subdomain + "." + local.Namespace + ".svc." + m.ServiceDomain()
	if len(full) <= mostHostname {
		spec.HostnameOverride, spec.SetHostnameAsFQDN = &full, nil
	}
}

// nodeCache is where the cache of DNS that Kubernetes documents listens on each node. Webhooks write it into pods, also where kubelets name another server.
var nodeCache = netip.MustParseAddr("169.254.20.10")

// homeDNS returns those name servers of a pod that are the DNS of this cluster. In the peer, these addresses lead nowhere, or to its own DNS.
func homeDNS(m project.NamespaceMapping, config *corev1.PodDNSConfig) (servers []string) {
	if config == nil {
		return nil
	}
	for _, server := range config.Nameservers {
		if address, err := netip.ParseAddr(server); err == nil && (slices.Contains(m.DNS, address) || address == nodeCache) && !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers
}
