// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var marker = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`)

// RBACMarkers returns the rules of the RBAC markers in the source files that match the pattern, by the namespace that the marker names. It
// ignores test files.
func (b *Env) RBACMarkers(pattern string) map[string][]rbacv1.PolicyRule {
	b.T.Helper()
	files, err := filepath.Glob(pattern)
	b.Must(err)
	rules := map[string][]rbacv1.PolicyRule{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		b.Must(err)
		for _, found := range marker.FindAllStringSubmatch(string(source), -1) {
			fields := map[string][]string{"namespace": {""}}
			for field := range strings.SplitSeq(found[1], ",") {
				key, value, _ := strings.Cut(field, "=")
				fields[key] = strings.Split(strings.Trim(value, `"`), ";")
			}
			namespace := fields["namespace"][0]
			rules[namespace] = append(rules[namespace], rbacv1.PolicyRule{
				APIGroups: fields["groups"], Resources: fields["resources"], ResourceNames: fields["resourceNames"], Verbs: fields["verbs"],
			})
		}
	}
	if len(rules) == 0 {
		b.T.Fatalf("no RBAC markers in %s", pattern)
	}
	return rules
}

// Bind grants a user the rules in a namespace, or cluster-wide if namespace is empty.
func (b *Env) Bind(user, namespace string, rules []rbacv1.PolicyRule) {
	b.T.Helper()
	name, subjects := metav1.ObjectMeta{Name: user, Namespace: namespace}, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	if namespace == "" {
		b.Make(&rbacv1.ClusterRole{ObjectMeta: name, Rules: rules})
		b.Make(&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}})
		return
	}
	b.Make(&rbacv1.Role{ObjectMeta: name, Rules: rules})
	b.Make(&rbacv1.RoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}})
}
