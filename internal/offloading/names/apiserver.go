// SPDX-License-Identifier: Apache-2.0

package names

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
)

const (
	// apiServer is the Service of the API server, below the domain; the hosts files of pods have it without svc as well, and in its own namespace without that.
	apiServer, apiServerSpace, apiServerName = "kubernetes.default.svc", "default.svc", "kubernetes"
	// maxAliases bounds the names that are kept of a pod, which its peer chooses.
	maxAliases = 8
	// portVariable is the variable in which each container of a pod has the port.
	portVariable, usualPort = "KUBERNETES_SERVICE_PORT", 443
)

// APIServer is where the hosts file of a pod leads the names of the API server of its own cluster. Programs with a resolver of their own do not read
// that file, and ask.
type APIServer struct {
	addresses map[string]netip.Addr
	port      uint16
}

// KeepAPIServer returns what of a pod [APIServerOf] reads.
func KeepAPIServer(spec *corev1.PodSpec) (kept corev1.PodSpec) {
	found := APIServerOf(spec)
	if found == nil {
		return kept
	}
	for _, name := range slices.Sorted(maps.Keys(found.addresses)) {
		kept.HostAliases = append(kept.HostAliases, corev1.HostAlias{IP: found.addresses[name].String(), Hostnames: []string{name}})
	}
	if found.port != usualPort {
		kept.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: portVariable, Value: strconv.Itoa(int(found.port))}}}}
	}
	return kept
}

// APIServerOf reads where the hosts file of a pod leads these names; nil if nowhere. Of several entries for a name the first one counts, as for
// programs that read the file.
func APIServerOf(spec *corev1.PodSpec) *APIServer {
	found := &APIServer{addresses: map[string]netip.Addr{}, port: usualPort}
	for _, alias := range spec.HostAliases {
		address, err := netip.ParseAddr(alias.IP)
		if err != nil || address.Zone() != "" {
			continue
		}
		for _, hostname := range alias.Hostnames {
			name := canonical(hostname)
			if _, ok := found.addresses[name]; !ok && isAPIServer(name) && len(name) <= longest && len(found.addresses) < maxAliases {
				found.addresses[name] = address.Unmap()
			}
		}
	}
	if len(found.addresses) == 0 {
		return nil
	}
	for _, container := range spec.Containers[:min(len(spec.Containers), 1)] {
		for _, envVar := range container.Env {
			if port, err := strconv.ParseUint(envVar.Value, 10, 16); err == nil && port > 0 && envVar.Name == portVariable {
				found.port = uint16(port)
				break // the user's own come later
			}
		}
	}
	return found
}

// isAPIServer reports whether a name in a hosts file is one of the API server.
func isAPIServer(name string) bool {
	return name == apiServerName || name == apiServerName+".default" || name == apiServer || strings.HasPrefix(name, apiServer+".")
}

// address returns where a name leads; name is one of a hosts file, or a full one that is not in it.
func (a *APIServer) address(name string, full bool) (netip.Addr, bool) {
	if address, found := a.addresses[name]; found || !full {
		return address, found
	}
	for _, shorter := range []string{apiServer, apiServerName + ".default"} {
		if address, found := a.addresses[shorter]; found {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// zoneOf returns the part of a name below the domain of the consumer, or else of this cluster, and that domain.
func (v *View) zoneOf(name string) (rest, zone string, found bool) {
	first, second := v.theirs, v.ours
	if len(second) > len(first) {
		first, second = second, first
	}
	for _, domain := range []string{first, second} {
		if rest, found = under(name, domain); found {
			return rest, domain, true
		}
	}
	return "", "", false
}

// AboutAPIServer reports whether a name is one of the API server, or next to one in the tree of names: the answer depends on the pod.
func (v *View) AboutAPIServer(name string) bool {
	name = canonical(name)
	if name == apiServerName || name == apiServerName+".default" || name == apiServer {
		return true
	}
	rest, _, _ := v.zoneOf(name)
	return rest == apiServer || rest == apiServerSpace || rest == "_tcp."+apiServer || rest == "_https._tcp."+apiServer
}

// Answer returns the answer to a question about the API server of the pod's own cluster, or about its address; nil if the question is about something
// else, or the pod has no such entry.
func (a *APIServer) Answer(v *View, q *Query, most int) []byte {
	if a == nil || !q.Internet() {
		return nil
	}
	name := q.Name()
	if isReverse(name) {
		return a.reverse(v, q, most)
	}
	if !v.AboutAPIServer(name) {
		return nil
	}
	rest, zone, full := v.zoneOf(name)
	host := name
	if full {
		host = join(apiServer, zone)
	}
	address, found := a.address(host, full)
	if _, mapped := v.remote["default"]; !found || rest == apiServerSpace && mapped {
		return nil
	}
	r := reply{authoritative: true}
	switch of := q.Question.Type; {
	case rest == apiServer || !full:
		if full && (of == dnsmessage.TypeSRV || of == dnsmessage.TypeALL) {
			a.service(&r, q.Question.Name, host, address)
		}
		if kind := typeOfAddress(address); of == kind || of == dnsmessage.TypeALL {
			r.answers = append(r.answers, addressRecord(q.Question.Name, address))
		}
	case strings.HasPrefix(rest, "_https.") && (of == dnsmessage.TypeSRV || of == dnsmessage.TypeALL):
		a.service(&r, q.Question.Name, host, address)
	}
	if len(r.answers) == 0 && full { // the name exists
		r.authorities = authority(zone)
	}
	return r.pack(q, most)
}

// service adds the record of the port.
func (a *APIServer) service(r *reply, owner dnsmessage.Name, host string, address netip.Addr) {
	target, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return
	}
	r.answers = append(r.answers, dnsmessage.Resource{
		Header: ownHeader(owner, dnsmessage.TypeSRV), Body: &dnsmessage.SRVResource{Weight: 100, Port: a.port, Target: target},
	})
	r.additionals = append(r.additionals, addressRecord(target, address))
}

// reverse answers which name an address has.
func (a *APIServer) reverse(v *View, q *Query, most int) []byte {
	host := join(apiServer, v.theirs)
	address, found := a.address(host, true)
	if !found || q.Name() != reverseName(address) {
		return nil
	}
	r := reply{authoritative: true}
	if of := q.Question.Type; of == dnsmessage.TypePTR || of == dnsmessage.TypeALL {
		target, err := dnsmessage.NewName(host + ".")
		if err != nil {
			return nil
		}
		r.answers = []dnsmessage.Resource{{Header: ownHeader(q.Question.Name, dnsmessage.TypePTR), Body: &dnsmessage.PTRResource{PTR: target}}}
	}
	return r.pack(q, most)
}

func typeOfAddress(address netip.Addr) dnsmessage.Type {
	if address.Is4() {
		return dnsmessage.TypeA
	}
	return dnsmessage.TypeAAAA
}

func addressRecord(owner dnsmessage.Name, address netip.Addr) dnsmessage.Resource {
	resource := dnsmessage.Resource{Header: ownHeader(owner, typeOfAddress(address)), Body: &dnsmessage.AAAAResource{AAAA: address.As16()}}
	if address.Is4() {
		resource.Body = &dnsmessage.AResource{A: address.As4()}
	}
	return resource
}

func ownHeader(owner dnsmessage.Name, of dnsmessage.Type) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: owner, Type: of, Class: dnsmessage.ClassINET, TTL: ownSeconds}
}

// reverseName returns the name under which DNS has the name of an address.
func reverseName(address netip.Addr) string {
	var parts []string
	if address.Is4() {
		for _, part := range address.As4() {
			parts = append(parts, strconv.Itoa(int(part)))
		}
		slices.Reverse(parts)
		return strings.Join(parts, ".") + ".in-addr.arpa"
	}
	for _, part := range address.As16() {
		parts = append(parts, strconv.FormatInt(int64(part>>4), 16), strconv.FormatInt(int64(part&15), 16))
	}
	slices.Reverse(parts)
	return strings.Join(parts, ".") + ".ip6.arpa"
}
