// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestRights(t *testing.T) {
	marks := `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: liqo-thing
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: liqo-thing
  namespace: liqo
rules:
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [one]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: liqo-thing
  namespace: liqo-tenant
rules:
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
`
	got, err := rights(role{"thing", []string{"./a", "./b"}}, []byte(marks))
	if err != nil {
		t.Fatal(err)
	}
	want := `# Made by ` + "`make generate`" + ` from the marks +kubebuilder:rbac in:
# ./a ./b
---
kind: ClusterRole
metadata:
  name: liqo-thing
rules:
- apiGroups:
  - ""
  resources:
  - nodes
  verbs:
  - list
---
kind: Role
metadata:
  name: liqo-thing
rules:
- apiGroups:
  - ""
  resourceNames:
  - one
  resources:
  - secrets
  verbs:
  - get
---
kind: ClusterRole
metadata:
  name: liqo-thing-tenant
rules:
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - get
`
	if string(got) != want {
		t.Errorf("got:\n%s", got)
	}
	if _, err := rights(role{name: "thing"}, []byte(strings.ReplaceAll(marks, "namespace: liqo-tenant", "namespace: elsewhere"))); err == nil ||
		!strings.Contains(err.Error(), `"elsewhere"`) {
		t.Errorf("a namespace that no role is bound in: %v", err)
	}
}

func TestValuesTable(t *testing.T) {
	got, err := valuesTable([]byte(`# About the file.

# How many,
# of what.
count: 3
group:
  # A map that is a value.
  labels: {}
  list: # not a value: no comment above
    # Of the inner.
    deep: "x"
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| `count` | `3` | How many, of what. |\n", "| `group.labels` | `{}` | A map that is a value. |\n",
		"| `group.list.deep` | `\"x\"` | Of the inner. |\n",
	} {
		if !strings.Contains(got, row) {
			t.Errorf("no row %q in\n%s", row, got)
		}
	}
	if _, err := valuesTable([]byte("a:\n  b: 1\n")); err == nil || !strings.Contains(err.Error(), "a.b has no comment") {
		t.Errorf("a value without a comment: %v", err)
	}
}

func TestDifference(t *testing.T) {
	before := map[string][]byte{"same": []byte("a"), "changed": []byte("a"), "gone": []byte("a")}
	after := map[string][]byte{"same": []byte("a"), "changed": []byte("b"), "new": []byte("a")}
	if got, want := difference(before, after), []string{"changed", "gone", "new"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
