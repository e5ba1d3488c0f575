// SPDX-License-Identifier: Apache-2.0

// Package domain reads from the resolv.conf of a pod what its kubelet has written there: the domain of the cluster, its name servers, and the search
// domains of the node.
//
// The package is pure. It must not know where the text is, nor what the names are for. TestParse proves it.
package domain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// File is where a pod finds the text.
const File = "/etc/resolv.conf"

// most is how many name servers a resolver asks.
const most = 3

// Resolver is what the resolv.conf of a pod states that asks the DNS of its cluster.
type Resolver struct {
	// Domain is that of the cluster, in lower case and without a dot at the end.
	Domain string
	// Servers are the name servers, in order.
	Servers []netip.Addr
	// Searches are the search domains after those of the cluster: those of the node, or of the pod's own dnsConfig. Pods may have each of them.
	Searches []string
}

// Parse reads the resolv.conf of a pod. A kubelet starts the search path of a pod with its namespace, all Services, and the whole domain.
func Parse(text string) (Resolver, error) {
	var found Resolver
	var search []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "search": // the last one counts
			search = words[1:]
		case words[0] == "nameserver":
			if server, err := netip.ParseAddr(words[1]); err == nil && len(found.Servers) < most {
				found.Servers = append(found.Servers, server)
			}
		}
	}
	for i := range search {
		search[i] = strings.ToLower(strings.TrimSuffix(search[i], "."))
	}
	for i := 0; i+2 < len(search); i++ {
		domain := search[i+2]
		namespace, own := strings.CutSuffix(search[i], "."+search[i+1])
		if own && search[i+1] == "svc."+domain && len(validation.IsDNS1123Label(namespace)) == 0 && Valid(domain) {
			found.Domain, found.Searches = domain, slices.DeleteFunc(slices.Concat(search[:i], search[i+3:]), unfit)
			if len(found.Searches) == 0 {
				found.Searches = nil
			}
			return found, nil
		}
	}
	return Resolver{}, fmt.Errorf("the search path %.300q of %s does not start with NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN, as a kubelet "+
		"writes it for the dnsPolicy ClusterFirst; set --cluster-domain of the kubelets, or this pod's dnsPolicy",
		strings.Join(search, " "), File)
}

// unfit reports whether an API server refuses a pod with this search domain. A node without search domains may state that as a dot, which some
// kubelets pass on.
func unfit(search string) bool { return len(validation.IsDNS1123SubdomainWithUnderscore(search)) > 0 }

// Valid reports whether a text can be the domain of a cluster.
func Valid(text string) bool { return len(validation.IsDNS1123Subdomain(text)) == 0 }
