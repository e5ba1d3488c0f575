// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/deployments/liqo/charttest"
)

// boundLater are the roles that the chart does not bind, and the namespaces in which controllers bind them.
var boundLater = map[string]string{
	"liqo-virtual-kubelet":           everywhere,
	"liqo-virtual-kubelet-tenant":    "tenant",
	"liqo-virtual-kubelet-lease":     "kube-node-lease",
	"liqo-virtual-kubelet-offloaded": "offloaded",
	"liqo-controller-manager-tenant": "tenant",
	"liqo-controller-manager-remote": "remote",

	"liqo-controller-manager-offloaded": "moving",

	"liqo-auth-tenant":             "tenant",
	"liqo-virtual-kubelet-remote":  "remote",
	"liqo-remote-peering-basic":    "tenant",
	"liqo-remote-peering-outgoing": "tenant",
	"liqo-remote-peering-incoming": "tenant",
}

const everywhere = "everywhere"

// TestRights: no role has a right that is wider than its use.
func TestRights(t *testing.T) {
	roles, where := rolesOf(t)
	for name, rules := range roles {
		if where[name] == "" {
			t.Errorf("%s is bound nowhere; remove it, or add it to boundLater", name)
		}
		for _, rule := range rules {
			for _, fault := range faults(rule, where[name] == everywhere) {
				t.Errorf("%s: %s: %+v", name, fault, rule)
			}
		}
	}
	for name := range boundLater {
		if _, there := roles[name]; !there {
			t.Errorf("%s is missing, but controllers bind it", name)
		}
	}
}

// workloads are pods, and the kinds that create pods.
var workloads = []string{"pods", "deployments", "daemonsets", "statefulsets", "replicasets", "replicationcontrollers", "jobs", "cronjobs"}

// faults returns what is wrong with a rule.
func faults(rule rbacv1.PolicyRule, clusterWide bool) (found []string) {
	for _, words := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		for _, word := range words {
			if strings.Contains(word, "*") {
				found = append(found, "a wildcard")
			}
		}
	}
	does := func(verbs ...string) bool {
		return slices.ContainsFunc(verbs, func(verb string) bool { return slices.Contains(rule.Verbs, verb) })
	}
	on := func(resource string) bool { return slices.Contains(rule.Resources, resource) }
	if does("escalate", "impersonate") {
		found = append(found, "a verb that includes all other rights")
	}
	if does("bind") && len(rule.ResourceNames) == 0 {
		found = append(found, "may bind any role")
	}
	if clusterWide && on("secrets") {
		found = append(found, "Secrets of all namespaces")
	}
	if clusterWide && on("serviceaccounts/token") && does("create") {
		found = append(found, "tokens of all service accounts")
	}
	if clusterWide && (on("pods/exec") || on("pods/attach") || on("pods/portforward") || on("nodes/proxy")) {
		found = append(found, "into all pods")
	}
	if (on("roles") || on("clusterroles")) && does("create", "update", "patch") {
		found = append(found, "creates roles; they belong into the chart")
	}
	if clusterWide && slices.ContainsFunc(workloads, on) && does("create", "update", "patch") {
		found = append(found, "pods of all namespaces, so the rights of all service accounts")
	}
	return found
}

// rolesOf returns the rules of all roles of the chart, and where each is bound.
func rolesOf(t *testing.T) (rules map[string][]rbacv1.PolicyRule, where map[string]string) {
	t.Helper()
	rules, where = map[string][]rbacv1.PolicyRule{}, map[string]string{}
	convert := func(from map[string]any, to any) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, to); err != nil {
			t.Fatal(err)
		}
	}
	key := func(kind, name string) string {
		if kind == "Role" {
			return "Role " + name
		}
		return name
	}
	for name, place := range boundLater {
		where[name] = place
	}
	for _, object := range charttest.Render(t, charttest.Internal) {
		switch kind := object.GetKind(); kind {
		case "ClusterRole", "Role":
			var role rbacv1.ClusterRole
			convert(object.Object, &role)
			rules[key(kind, role.Name)] = role.Rules
		case "ClusterRoleBinding", "RoleBinding":
			var binding rbacv1.ClusterRoleBinding
			convert(object.Object, &binding)
			place := everywhere
			if kind == "RoleBinding" {
				place = object.GetNamespace()
			}
			where[key(binding.RoleRef.Kind, binding.RoleRef.Name)] = place
		}
	}
	return rules, where
}
