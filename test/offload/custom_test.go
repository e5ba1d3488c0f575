// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// widgets is the definition of a kind, without an operator.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {color: {type: string}}}
            status:
              type: object
              properties:
                observedGeneration: {type: integer}
                conditions:
                  type: array
                  items: {type: object, properties: {type: {type: string}, status: {type: string}, observedGeneration: {type: integer}}}
`

const widgetKind = "example.com/v1/Widget"

// TestSettingsCustomResources: with the rights of both administrators, the kind that the user lists works as at home: an operator in milan sees the object, and
// kubectl in rome waits for its condition. Without them an event gives the reason. At the end nothing of it is left.
func TestSettingsCustomResources(t *testing.T) {
	setting(t)
	for _, c := range clusters.Clusters {
		c.Apply(t, widgets)
		t.Cleanup(func() { c.Kubectl(t, "delete", "crd", "widgets.example.com", timeout) })
		c.Kubectl(t, "wait", "crd/widgets.example.com", "--for=condition=Established", timeout)
	}
	refused := rome.TryKubectl("apiVersion: offloading.liqo.io/v1alpha1\nkind: NamespaceOffloading\nmetadata: {name: offloading, namespace: "+
		"default}\nspec: {customResources: [{apiVersion: v1, kind: Pod}]}", "apply", "-f", "-")
	if refused.Code == 0 || !strings.Contains(refused.String(), "such as example.com/v1") {
		t.Errorf("a kind of Kubernetes is accepted, or the refusal does not help: %s", refused)
	}
	name := newNamespace(t)
	rome.Apply(t, `
apiVersion: offloading.liqo.io/v1alpha1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: `+name+`}
spec: {namespaceMappingStrategy: DefaultName, podOffloadingStrategy: LocalAndRemote, customResources: [{apiVersion: example.com/v1, kind: Widget}]}
`)
	wantObject(t, rome, offloadingKind, name, "offloading", "{status: {offloadingPhase: Ready}}")
	s := namespace{name, remoteName(t, name)}
	s.apply(t, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: lamp}, spec: {color: red}}")
	s.wantEvent(
		t, "NamespaceOffloading", "offloading", "Warning", "FailedReflection", "virtual kubelets may not read widgets.example.com",
		"virtualKubelet.customResources",
	)
	rome.Liqoctl(t, "upgrade", "--set", "virtualKubelet.customResources={widgets.example.com}")
	t.Cleanup(func() { rome.Liqoctl(t, "upgrade", "--set", "virtualKubelet.customResources=null") })
	s.wantEvent(t, "NamespaceOffloading", "offloading", "Warning", "FailedReflection", "grants no rights on widgets.example.com", "peers.customResources")
	milan.Liqoctl(t, "upgrade", "--set", "peers.customResources={widgets.example.com}")
	t.Cleanup(func() { milan.Liqoctl(t, "upgrade", "--set", "peers.customResources=null") })
	s.wantRemote(t, widgetKind, "lamp", "{spec: {color: red}, metadata: {annotations: {liqo.io/local-generation: '1'}}}")

	observed := strings.TrimSpace(milan.Kubectl(t, "-n", s.remote, "get", "widget", "lamp", "-o", "jsonpath={.metadata.generation}"))
	report := func(status string) {
		t.Helper()
		milan.Kubectl(t, "-n", s.remote, "patch", "widget", "lamp", "--subresource=status", "--type=merge", "-p",
			`{"status":{"observedGeneration":`+observed+`,"conditions":[{"type":"Ready","status":"`+status+`","observedGeneration":`+observed+`}]}}`)
	}
	report("True")
	rome.Kubectl(t, "-n", name, "wait", "widget/lamp", "--for=condition=Ready", timeout)
	rome.Kubectl(t, "-n", name, "patch", "widget", "lamp", "--type=merge", "-p", `{"spec":{"color":"blue"}}`)
	s.wantRemote(t, widgetKind, "lamp", "{spec: {color: blue}}")
	observed = strings.TrimSpace(milan.Kubectl(t, "-n", s.remote, "get", "widget", "lamp", "-o", "jsonpath={.metadata.generation}"))
	report("False")
	wantObject(t, rome, widgetKind, name, "lamp", "{status: {observedGeneration: 2, conditions: [{type: Ready, status: 'False', observedGeneration: 2}]}}")

	rome.Liqoctl(t, "unoffload", "namespace", name)
	wantObject(t, rome, widgetKind, name, "lamp", "{spec: {color: blue}, status: null}")
	env.Eventually(t, env.Hang, "the copy is gone", func() (string, bool) {
		r := milan.TryKubectl("", "get", "widgets", "-A", "-o", "name")
		return r.String(), r.Code == 0 && r.Out == ""
	})
}
