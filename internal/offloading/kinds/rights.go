// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Verbs are what a peer does with the objects that it writes.
var Verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// Rights are those of a peer on objects of a kind in its remote namespaces. The zero value: all Verbs.
type Rights struct {
	// Bounded: it has all only where policies bound what it writes (Kubernetes 1.30 and later); elsewhere those in Elsewhere.
	Bounded   bool
	Elsewhere []string
	// Value, below peers in the values of the chart, lets a peer write; without it, the peer has those in Without.
	Value   string
	Without []string
}

// Metadata is which labels and annotations a peer may write, beyond those without a domain and those that every object may have.
type Metadata struct {
	// Value is the name of further keys, below peers.metadata in the values of the chart.
	Value string
	// Annotations are further keys of annotations.
	Annotations []string
	// Collected: side cars collect such objects by labels without a domain, which have an underscore. A peer may not write these.
	Collected bool
}

// Guard is the policy liqo-peers-NAME, for what peers write of a kind.
type Guard struct {
	Name        string
	Validations []Validation
}

// Validation is one of a ValidatingAdmissionPolicy. Either text is empty.
type Validation struct {
	Expression        string `json:"expression"`
	Message           string `json:"message,omitempty"`
	MessageExpression string `json:"messageExpression,omitempty"`
}

// Grouped are the resources of a group.
type Grouped struct {
	Group     string   `json:"group"`
	Resources []string `json:"resources"`
}

// Group returns the remote resources of rows by their group, both in the order of the alphabet.
func Group(rows []*Kind) (all []Grouped) {
	for _, kind := range rows {
		at := slices.IndexFunc(all, func(group Grouped) bool { return group.Group == kind.Remote.Group })
		if at < 0 {
			at = len(all)
			all = append(all, Grouped{Group: kind.Remote.Group})
		}
		all[at].Resources = append(all[at].Resources, kind.Remote.Plural)
	}
	for i := range all {
		slices.Sort(all[i].Resources)
	}
	slices.SortFunc(all, func(a, b Grouped) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

// Foreign reports whether the remote kind is one of Kubernetes, and none of Liqo's own.
func (k *Kind) Foreign() bool { return k.Remote == k.Local }

// The roles of our processes that have rights on all kinds, and where: Rules.
const (
	VirtualKubelet, Offloaded = "virtual-kubelet", "liqo-offloaded"
	Manager, Remote           = "controller-manager", "liqo-remote"
)

// Rules are the rights of a role in the namespaces of a kind that follow from the rows: the virtual kubelet reads what it copies, and the controller manager
// counts what peers write, and empties namespaces.
func Rules(role, namespace string) (rules []rbacv1.PolicyRule) {
	for _, kind := range All() {
		if rule, needed := kind.Rule(role, namespace); needed {
			rules = append(rules, rule)
		}
	}
	return rules
}

// Rule is what Rules has of a kind.
func (k *Kind) Rule(role, namespace string) (rule rbacv1.PolicyRule, needed bool) {
	var verbs []string
	resource := k.Remote
	switch {
	case role == VirtualKubelet && namespace == Offloaded && k.Workers > 0:
		resource, verbs = k.Local, []string{"list", "watch"}
	case role == Manager && namespace == Remote:
		if !k.Data {
			verbs = append(verbs, "deletecollection")
		}
		if k.Counted && k.Foreign() {
			verbs = append(verbs, "list")
		}
	}
	return rbacv1.PolicyRule{APIGroups: []string{resource.Group}, Resources: []string{resource.Plural}, Verbs: verbs}, len(verbs) > 0
}
