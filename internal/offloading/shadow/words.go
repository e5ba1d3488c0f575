// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// word is a URL, or a run of the characters that names, addresses, paths and amounts are made of.
var word = regexp.MustCompile(`[a-z]+://[^\s"'<>]+|[\pL\pN:/._%@+~*?&#\-]+`)

// What words puts in place of what it leaves out.
const (
	anAddress = "(an address)"
	anAccount = "(an account)"
	another   = "(another's)"
)

// words returns a message about an object of a peer without what the peer must not learn: addresses, accounts, and names of others. It knows them by their form
// and place, whatever component wrote the message: an address parses as one, an account begins with system:, a name of others is qualified by another namespace or follows
// the word namespace, node or user. What the peer itself has named in the object it knows already, and stays.
func words(message, namespace string, own []string) string {
	var out strings.Builder
	before, rest := "", 0
	for _, at := range word.FindAllStringIndex(message, -1) {
		one, between := message[at[0]:at[1]], message[rest:at[0]]
		bare := strings.TrimRight(one, ".:?")
		out.WriteString(between)
		out.WriteString(instead(bare, before+between, namespace, own))
		out.WriteString(one[len(bare):])
		before, rest = strings.ToLower(one), at[1]
	}
	return out.String() + message[rest:]
}

// instead returns what to write for a word, which follows another one and what is between the two.
func instead(one, before, namespace string, own []string) string {
	switch {
	case slices.Contains(own, one) || one == namespace:
		return one
	case isAddress(one):
		return anAddress
	case strings.HasPrefix(one, "system:"):
		return anAccount
	case isQualified(one, namespace) || isUID(one) || isNamed(one, before):
		return another
	}
	return one
}

// owners is what stands before the name of an owner, which may be in quotes or after a colon.
var owners = regexp.MustCompile("^(namespace|node|user|tenant)s?([ :=]*)([\"'`]?)$")

// isNamed reports whether a word is the name of a namespace, a node or a user: it follows that word, and is in quotes, after a colon, or no word of a language.
func isNamed(one, before string) bool {
	found := owners.FindStringSubmatch(before)
	return found != nil && (found[3] != "" || strings.ContainsAny(found[2], ":=") || strings.ContainsAny(one, "-.0123456789"))
}

// isAddress reports whether a word is where something listens: a URL, an address with or without prefix or port, the name of a Service, or a name with a port.
func isAddress(one string) bool {
	if strings.Contains(one, "://") {
		return true
	}
	if _, err := netip.ParseAddr(one); err == nil {
		return true
	}
	if _, err := netip.ParsePrefix(one); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(one); err == nil {
		return true
	}
	host, _, _ := strings.Cut(one, "/")
	host, port, hasPort := strings.Cut(host, ":")
	if labels := strings.Split(host, "."); len(labels) > 2 && labels[2] == "svc" || len(labels) == 2 && labels[1] == "svc" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return hasPort && err == nil && strings.Contains(host, ".") && len(validation.IsDNS1123Subdomain(host)) == 0
}

// isQualified reports whether a word names an object of another namespace: namespace/name. The kinds of Kubernetes, such as pods/exec, and keys in a domain, such
// as example.com/key, have that form as well.
func isQualified(one, namespace string) bool {
	first, second, found := strings.Cut(one, "/")
	return found && first != namespace && len(validation.IsDNS1123Label(first)) == 0 && len(validation.IsDNS1123Subdomain(second)) == 0 &&
		!slices.Contains(subresources, second)
}

var subresources = []string{"exec", "log", "status", "resize", "ephemeralcontainers", "eviction", "binding", "portforward", "attach", "scale", "finalizers"}

var uid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// isUID reports whether a word identifies an object or a cluster.
func isUID(one string) bool { return uid.MatchString(one) }
