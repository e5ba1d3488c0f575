// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

const (
	// every stands for a rule without a host: some controllers prefer its path to a shorter one of a rule with a host.
	every = "*"
	// rest stands for a default backend, which gets what no rule has.
	rest = ""
)

// Of returns the hosts that an Ingress answers for, sorted.
func Of(ingress *networkingv1.Ingress) (hosts []string) {
	for _, rule := range ingress.Spec.Rules {
		if rule.Host == "" {
			hosts = append(hosts, every)
			continue
		}
		hosts = append(hosts, strings.ToLower(rule.Host))
	}
	for _, tls := range ingress.Spec.TLS {
		for _, host := range tls.Hosts {
			hosts = append(hosts, strings.ToLower(host))
		}
	}
	if ingress.Spec.DefaultBackend != nil {
		hosts = append(hosts, rest)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Taken returns which of the hosts that a peer asks for meets one that another has, and that one.
func Taken(asked, others []string) (host, other string, taken bool) {
	for _, host := range asked {
		for _, other := range others {
			if meets(host, other) {
				return host, other, true
			}
		}
	}
	return "", "", false
}

// meets reports whether a controller could give requests for the other host to the one that a peer asks for.
func meets(host, other string) bool {
	if host == other {
		return true
	}
	switch domain, wildcard := strings.CutPrefix(host, "*."); {
	case host == every:
		return other != rest
	case host == rest:
		return other == every
	case wildcard: // for some controllers also of names several levels below
		return strings.HasSuffix(other, "."+domain)
	}
	// The more specific host wins, so a name takes what a wildcard of another has.
	if domain, wildcard := strings.CutPrefix(other, "*."); wildcard {
		_, parent, _ := strings.Cut(host, ".")
		return parent == domain
	}
	return false
}

// Name returns a host as users know it.
func Name(host string) string {
	switch host {
	case every:
		return "none (a rule for every host)"
	case rest:
		return "none (a default backend)"
	}
	return host
}

// Trim drops what is not compared, so that the Ingresses of a cluster cost little memory. It is a transformation of a cache.
func Trim(object any) (any, error) {
	ingress, ok := object.(*networkingv1.Ingress)
	if !ok {
		return object, nil
	}
	ingress.ManagedFields, ingress.Annotations, ingress.Status = nil, nil, networkingv1.IngressStatus{}
	for i := range ingress.Spec.Rules {
		ingress.Spec.Rules[i].HTTP = nil
	}
	return ingress, nil
}
