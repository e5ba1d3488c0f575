// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestMerged: rights of the rows and of the marks become a rule for each group and set of verbs, and rules on named objects stay alone.
func TestMerged(t *testing.T) {
	rule := func(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	named := rule("", []string{"get"}, "secrets")
	named.ResourceNames = []string{"key"}
	list, both := []string{"list"}, []string{"deletecollection", "list"}
	got := merged(
		[]rbacv1.PolicyRule{rule("", list, "claims", "secrets"), named, rule("apps", list, "deployments")},
		[]rbacv1.PolicyRule{rule("", []string{"deletecollection"}, "secrets"), rule("", both, "configmaps")},
	)
	want := []rbacv1.PolicyRule{rule("", list, "claims"), rule("", both, "configmaps", "secrets"), named, rule("apps", list, "deployments")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if marks := []rbacv1.PolicyRule{rule("b", list, "y", "x"), rule("a", list, "z")}; !reflect.DeepEqual(merged(marks, nil), marks) {
		t.Error("without rows, the rules changed")
	}
}
