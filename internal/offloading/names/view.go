// SPDX-License-Identifier: Apache-2.0

package names

import (
	"maps"
	"slices"
	"strings"
)

// longest is the most characters of a name, without the dot at its end.
const longest = 253

// View is what the names of one consumer mean in this cluster. It does not change.
type View struct {
	theirs, ours string
	// remote has the names of remote namespaces by those of the consumer, and local the other way.
	remote, local map[string]string
	// open are namespaces of this cluster whose names pods of peers may use as if they were the consumer's.
	open map[string]bool
	// server is the name of our name server, below the domain.
	server string
}

// Cluster is what this cluster is, for the pods of all peers.
type Cluster struct {
	// Domain is that of this cluster.
	Domain string
	// Open are its namespaces in which pods of peers find Services as if they were the consumer's.
	Open []string
	// Server is the Service of our name server, NAME.NAMESPACE.
	Server string
}

// ClusterDNS are the names of the Service of a cluster's DNS, below the domain: programs with a resolver of their own look them up.
var ClusterDNS = []string{"kube-dns.kube-system.svc", "dns-default.openshift-dns.svc"}

// NewView returns the view of a consumer whose domain is theirs. remote maps its namespaces to those of this cluster.
func NewView(theirs string, here Cluster, remote map[string]string) *View {
	v := &View{
		theirs: canonical(theirs), ours: canonical(here.Domain), remote: maps.Clone(remote), local: map[string]string{}, open: map[string]bool{},
		server: here.Server + ".svc",
	}
	for _, local := range slices.Sorted(maps.Keys(remote)) {
		v.local[remote[local]] = local
	}
	for _, namespace := range here.Open {
		v.open[namespace] = true
	}
	return v
}

// Kind is what is done about a name.
type Kind int

const (
	// Pass: the DNS of this cluster answers, as it likes.
	Pass Kind = iota
	// Mapped: the DNS of this cluster is asked for another name.
	Mapped
	// Absent: the consumer may have the name, and this cluster has nothing of it.
	Absent
	// Reverse: the DNS of this cluster answers with names, which are translated.
	Reverse
)

// Look returns what is done about a name for which a pod of the consumer asks, and the name to ask for.
func (v *View) Look(name string) (Kind, string) {
	name = canonical(name)
	rest, ok := under(name, v.theirs)
	switch _, own := under(name, v.ours); {
	case isReverse(name):
		return Reverse, name
	case !ok, own && len(v.ours) > len(v.theirs):
		return Pass, name
	case isCommon(rest):
		return Mapped, join(rest, v.ours)
	case slices.Contains(ClusterDNS, rest):
		return Mapped, join(v.server, v.ours)
	}
	labels, at := namespaceOf(rest)
	if at < 0 {
		return Absent, ""
	}
	remote, mapped := v.remote[labels[at]]
	switch {
	case mapped:
		labels[at] = remote
	case v.theirs == v.ours && v.local[labels[at]] != "":
		return Pass, name // a pod may know its remote namespace, from its own full name for example
	case v.local[labels[at]] != "": // the copy of an alias (ExternalName) names it, under the domain of the consumer
	case !v.open[labels[at]]:
		return Absent, ""
	}
	asked := join(strings.Join(labels, "."), v.ours)
	if len(asked) > longest {
		return Absent, "" // it fits into no question
	}
	return Mapped, asked
}

// Home returns the consumer's name for one of this cluster, and whether there is one.
func (v *View) Home(name string) (string, bool) {
	rest, own := under(canonical(name), v.ours)
	if !own {
		return name, false
	}
	if isCommon(rest) {
		return join(rest, v.theirs), true
	}
	labels, at := namespaceOf(rest)
	if at < 0 {
		return name, false
	}
	local, mapped := v.local[labels[at]]
	switch {
	case mapped:
		labels[at] = local
	case !v.open[labels[at]] || v.remote[labels[at]] != "":
		return name, false
	}
	home := join(strings.Join(labels, "."), v.theirs)
	return home, len(home) <= longest
}

// zone replaces the domain only: for the records that speak of the zone.
func (v *View) zone(name string) string {
	rest, own := under(canonical(name), v.ours)
	if moved := join(rest, v.theirs); own && len(moved) <= longest {
		return moved
	}
	return name
}

// namespaceOf returns the labels of a name below a domain, and which of them is the namespace: -1 if none is.
func namespaceOf(rest string) (labels []string, at int) {
	labels = strings.Split(rest, ".")
	if last := len(labels) - 1; last > 0 && (labels[last] == "svc" || labels[last] == "pod") {
		return labels, last - 1
	}
	return labels, -1
}

// isCommon reports whether a name below the domain, without it, belongs to no namespace: each cluster has it.
func isCommon(rest string) bool {
	return slices.Contains([]string{"", "svc", "pod", "dns-version", "ns.dns"}, rest)
}

func isReverse(name string) bool {
	return strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa")
}

// canonical returns a name in lower case, without the dot at its end. A label may have any bytes, of which only letters of ASCII have another case.
func canonical(name string) string {
	lower := []byte(strings.TrimSuffix(name, "."))
	for i, char := range lower {
		if 'A' <= char && char <= 'Z' {
			lower[i] = char + 'a' - 'A'
		}
	}
	return string(lower)
}

// under returns what is before the domain in a name that lies in it; both are canonical.
func under(name, domain string) (rest string, _ bool) {
	if name == domain {
		return "", domain != ""
	}
	rest, found := strings.CutSuffix(name, "."+domain)
	return rest, found && domain != ""
}

func join(rest, domain string) string {
	if rest == "" {
		return domain
	}
	return rest + "." + domain
}
