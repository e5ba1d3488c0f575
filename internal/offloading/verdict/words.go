// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// and place, whatever component wrote the message: an address parses as one, an account begins with system:, a name of others is qualified by another
// namespace or follows the word namespace, node or user. What the peer itself has named in the object it knows already, and stays.
func words(message, namespace string, own []string) string {
	var out strings.Builder
	before, rest := "", 0
	for _, at := range word.FindAllStringIndex(message, -1) {
		token, between := message[at[0]:at[1]], message[rest:at[0]]
		bare := strings.TrimRight(token, ".:?,;)")
		out.WriteString(between)
		out.WriteString(instead(bare, before+between, namespace, own))
		out.WriteString(token[len(bare):])
		before, rest = strings.ToLower(token), at[1]
	}
	return out.String() + message[rest:]
}

// instead returns what to write for a word, which follows another one and what is between the two.
func instead(token, before, namespace string, own []string) string {
	switch {
	case slices.Contains(own, token) || token == namespace:
		return token
	case isAddress(token):
		return anAddress
	case strings.HasPrefix(token, "system:"):
		return anAccount
	case isQualified(token, namespace) || isUID(token) || isNamed(token, before):
		return another
	}
	return token
}

// owners is what stands before the name of an owner, which may be in quotes or after a colon.
var owners = regexp.MustCompile("^(namespace|node|user|tenant)s?([ :=]*)([\"'`]?)$")

// isNamed reports whether a word is the name of a namespace, a node or a user: it follows that word, and is in quotes, after a colon, or no word of a
// language. A user that is a number is one of a container.
func isNamed(token, before string) bool {
	found := owners.FindStringSubmatch(before)
	if found == nil || found[1] == "user" && isNumber(token) {
		return false
	}
	return found[3] != "" || strings.ContainsAny(found[2], ":=") || strings.ContainsAny(token, "-.0123456789")
}

func isNumber(token string) bool {
	_, err := strconv.ParseUint(token, 10, 64)
	return err == nil
}

// isAddress reports whether a word is where something listens: a URL, an address with or without prefix or port, the name of a Service, or a name with a port.
func isAddress(token string) bool {
	if strings.Contains(token, "://") {
		return true
	}
	if _, err := netip.ParseAddr(token); err == nil {
		return true
	}
	if _, err := netip.ParsePrefix(token); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(token); err == nil {
		return true
	}
	host, _, _ := strings.Cut(token, "/")
	host, port, hasPort := strings.Cut(host, ":")
	if _, err := netip.ParseAddr(host); err == nil { // with a path
		return true
	}
	if labels := strings.Split(host, "."); len(labels) > 2 && labels[2] == "svc" || len(labels) == 2 && labels[1] == "svc" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return hasPort && err == nil && strings.Contains(host, ".") && len(validation.IsDNS1123Subdomain(host)) == 0
}

// isQualified reports whether a word names an object of another namespace: namespace/name. The kinds of Kubernetes, such as pods/exec, and keys in a
// domain, such as example.com/key, have that form as well, and so have numbers (0/3) and two words of the same kind (requests/limits).
func isQualified(token, namespace string) bool {
	first, second, found := strings.Cut(token, "/")
	return found && first != namespace && len(validation.IsDNS1123Label(first)) == 0 && len(validation.IsDNS1123Subdomain(second)) == 0 &&
		!slices.Contains(subresources, second) && !(isNumber(first) && isNumber(second)) && !(vocabulary()[first] && vocabulary()[second])
}

// vocabulary are the words of the API of pods: the names of its fields, of the resources that each node has, and what joins them.
var vocabulary = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{"and": true, "or": true}
	for _, resource := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		words[string(resource)] = true
	}
	seen := map[reflect.Type]bool{}
	var add func(reflect.Type)
	add = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			add(of.Elem())
		case reflect.Struct:
			if seen[of] || of.PkgPath() != reflect.TypeFor[corev1.PodSpec]().PkgPath() {
				return
			}
			seen[of] = true
			for i := range of.NumField() {
				words[jsonName(of.Field(i))] = true
				add(of.Field(i).Type)
			}
		}
	}
	add(reflect.TypeFor[corev1.PodSpec]())
	for _, field := range reflect.VisibleFields(reflect.TypeFor[metav1.ObjectMeta]()) {
		words[jsonName(field)] = true
	}
	return words
})

var subresources = []string{"exec", "log", "status", "resize", "ephemeralcontainers", "eviction", "binding", "portforward", "attach", "scale", "finalizers"}

var uid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// isUID reports whether a word identifies an object or a cluster.
func isUID(token string) bool { return uid.MatchString(token) }
