// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// setting prepares a test of a setting. Such a test changes an installation and restores the defaults at its end.
func setting(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("NOT RUN: it restarts components of Liqo; use -long")
	}
	installedAndPeered(t)
}

// TestSettingsWithoutAPIServer: pods of a namespace that was offloaded with the annotation get no access to rome's API server.
func TestSettingsWithoutAPIServer(t *testing.T) {
	setting(t)
	name := newNamespace(t)
	rome.Apply(t, `
apiVersion: offloading.liqo.io/v1alpha1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: `+name+`, annotations: {liqo.io/apiserver-support: "false"}}
spec: {namespaceMappingStrategy: DefaultName, podOffloadingStrategy: Remote}
`)
	wantObject(t, rome, offloadingKind, name, "offloading", "{status: {offloadingPhase: Ready}}")
	s := namespace{name, remoteName(t, name)}
	s.apply(t, customPod("alone", "", "", ""))
	s.running(t, "alone")
	s.wantRemote(t, podKind, "alone", "{spec: {automountServiceAccountToken: false, hostAliases: null, containers: [{env: null}]}}")
	if found := s.inMilan(t, secretKind, "alone-token"); found != nil {
		t.Error("a Secret with its tokens is in milan")
	}
}

// virtualKubelet waits until the virtual kubelet runs with an argument, or without it.
func virtualKubelet(t *testing.T, argument string, with bool) {
	t.Helper()
	env.Eventually(t, env.Hang, "the virtual kubelet has the new arguments", func() (string, bool) {
		result := rome.TryKubectl("", "get", "deployments", "-A", "-l", "app.kubernetes.io/name=virtual-kubelet", "-o",
			"jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.template.spec.containers[0].args}{end}")
		words := strings.Fields(result.Out)
		if result.Code != 0 || len(words) < 3 || strings.Contains(result.Out, argument) != with {
			return result.String(), false
		}
		result = rome.TryKubectl("", "-n", words[0], "rollout", "status", "deployment/"+words[1], timeout)
		return result.String(), result.Code == 0
	})
	rome.Kubectl(t, "wait", "node", virtualNode, "--for=condition=Ready", timeout)
}

// TestSettingsReflection turns off the workers of a kind, and excludes labels and annotations from reflection.
func TestSettingsReflection(t *testing.T) {
	setting(t)
	s := offload(t)
	const object = "{apiVersion: v1, kind: KIND, metadata: {name: NAME, labels: {plain: a, secret.example.org/b: b}, annotations: {open: c, hidden: d}}}"
	create := func(kind, name string) { s.apply(t, strings.NewReplacer("KIND", kind, "NAME", name).Replace(object)) }
	create("Secret", "before")
	s.wantRemote(t, secretKind, "before", "{metadata: {labels: {plain: a, secret.example.org/b: b}, annotations: {open: c, hidden: d}}}")

	rome.Liqoctl(t, "upgrade", "--set",
		"virtualKubelet.extra.args={--configmap-reflection-workers=0,--labels-not-reflected=secret.example.org/*,--annotations-not-reflected=hidden}")
	t.Cleanup(func() {
		rome.Liqoctl(t, "upgrade", "--set", "virtualKubelet.extra.args=null")
		virtualKubelet(t, "--configmap-reflection-workers=0", false)
		s.wantRemote(t, configMapKind, "waits", "{metadata: {labels: {plain: a, secret.example.org/b: b}, annotations: {open: c, hidden: d}}}")
	})
	virtualKubelet(t, "--configmap-reflection-workers=0", true)
	create("ConfigMap", "waits")
	create("Secret", "after")
	for _, name := range []string{"after", "before"} {
		s.wantRemote(t, secretKind, name, "{metadata: {labels: {plain: a, secret.example.org/b: null}, annotations: {open: c, hidden: null}}}")
	}
	// The Secret "after" was created later and has been reflected.
	if found := s.inMilan(t, configMapKind, "waits"); found != nil {
		t.Error("a ConfigMap is reflected without workers")
	}
}

// TestSettingsEnforcement: with resource enforcement, pods need limits within the grant.
func TestSettingsEnforcement(t *testing.T) {
	setting(t)
	milan.Liqoctl(t, "upgrade", "--set", "controllerManager.config.enableResourceEnforcement=true")
	t.Cleanup(func() {
		milan.Liqoctl(t, "upgrade", "--set", "controllerManager.config.enableResourceEnforcement=false")
	})
	s := offload(t)
	s.apply(t, customPod("endless", "", "", ""))
	s.wantEvent(t, "Pod", "endless", "Warning", "FailedReflection", "no limit for", "every container needs limits")
	if found := s.inMilan(t, shadowPodKind, "endless"); found != nil {
		t.Error("the refused pod has a ShadowPod in milan")
	}
	s.apply(t, customPod("modest", "", "", "resources: {limits: {cpu: 10m, memory: 16Mi}}"))
	s.running(t, "modest")
	s.apply(t, customPod("greedy", "", "", "resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 900, memory: 16Mi}}"))
	s.wantEvent(t, "Pod", "greedy", "Warning", "FailedReflection", "granted to cluster", "lower the limits")
}
