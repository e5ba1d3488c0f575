// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// settings are what administrators set: for all peers, or a namespace's user for it. It changes both installations, and changes them back.
func settings(t *testing.T) {
	t.Run("without the API server", withoutAPIServer)
	t.Run("reflection", reflectionSettings)
	t.Run("enforcement", enforcement)
}

// withoutAPIServer: pods of a namespace that was offloaded with the annotation get nothing of rome's API server.
func withoutAPIServer(t *testing.T) {
	name := newNamespace(t)
	rome.Apply(t, `
apiVersion: offloading.liqo.io/v1alpha1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: `+name+`, annotations: {liqo.io/apiserver-support: "false"}}
spec: {namespaceMappingStrategy: DefaultName, podOffloadingStrategy: Remote}
`)
	becomes(t, rome, offloadingKind, name, "offloading", "{status: {offloadingPhase: Ready}}", started)
	s := space{name, twinOf(t, name)}
	s.apply(t, odd("alone", "", "", ""))
	s.running(t, "alone")
	s.becomes(t, podKind, "alone", "{spec: {automountServiceAccountToken: false, hostAliases: null, containers: [{env: null}]}}")
	if found := s.there(t, secretKind, "alone-token"); found != nil {
		t.Error("its tokens are in milan")
	}
}

// kubelet waits until the virtual kubelet runs with an argument, or without it.
func kubelet(t *testing.T, argument string, with bool) {
	t.Helper()
	env.Eventually(t, time.Minute, "the virtual kubelet is as it was set", func() (string, bool) {
		said := rome.TryKubectl("", "get", "deployments", "-A", "-l", "app.kubernetes.io/name=virtual-kubelet", "-o",
			"jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.spec.template.spec.containers[0].args}{end}")
		words := strings.Fields(said.Out)
		if said.Code != 0 || len(words) < 3 || strings.Contains(said.Out, argument) != with {
			return said.String(), false
		}
		said = rome.TryKubectl("", "-n", words[0], "rollout", "status", "deployment/"+words[1], "--timeout=50s")
		return said.String(), said.Code == 0
	})
	rome.Kubectl(t, "wait", "node", virtualNode, "--for=condition=Ready", "--timeout=60s")
}

// reflectionSettings: no workers, and keys that do not cross.
func reflectionSettings(t *testing.T) {
	s := offloaded(t)
	const object = "{apiVersion: v1, kind: KIND, metadata: {name: NAME, labels: {plain: a, secret.example.org/b: b}, annotations: {open: c, hidden: d}}}"
	made := func(kind, name string) { s.apply(t, strings.NewReplacer("KIND", kind, "NAME", name).Replace(object)) }
	made("Secret", "before")
	s.becomes(t, secretKind, "before", "{metadata: {labels: {plain: a, secret.example.org/b: b}, annotations: {open: c, hidden: d}}}")

	rome.Liqoctl(t, "upgrade", "--set",
		"virtualKubelet.extra.args={--configmap-reflection-workers=0,--labels-not-reflected=secret.example.org/*,--annotations-not-reflected=hidden}")
	t.Cleanup(func() {
		rome.Liqoctl(t, "upgrade", "--set", "virtualKubelet.extra.args=null")
		kubelet(t, "--configmap-reflection-workers=0", false)
		s.becomes(t, configMapKind, "stays", "{metadata: {labels: {plain: a, secret.example.org/b: b}, annotations: {open: c, hidden: d}}}")
	})
	kubelet(t, "--configmap-reflection-workers=0", true)
	made("ConfigMap", "stays")
	made("Secret", "after")
	for _, name := range []string{"after", "before"} {
		s.becomes(t, secretKind, name, "{metadata: {labels: {plain: a, secret.example.org/b: null}, annotations: {open: c, hidden: null}}}")
	}
	// The Secret was made later, and is there.
	if found := s.there(t, configMapKind, "stays"); found != nil {
		t.Error("a ConfigMap crosses without workers")
	}
}

// enforcement: pods must say what they may use at most.
func enforcement(t *testing.T) {
	milan.Liqoctl(t, "upgrade", "--set", "controllerManager.config.enableResourceEnforcement=true")
	t.Cleanup(func() {
		milan.Liqoctl(t, "upgrade", "--set", "controllerManager.config.enableResourceEnforcement=false")
	})
	s := offloaded(t)
	s.apply(t, odd("endless", "", "", ""))
	s.told(t, "Pod", "endless", "Warning", "FailedReflection", "no limit for", "every container needs limits")
	if found := s.there(t, shadowPodKind, "endless"); found != nil {
		t.Error("it is in milan all the same")
	}
	s.apply(t, odd("modest", "", "", "resources: {limits: {cpu: 10m, memory: 16Mi}}"))
	s.running(t, "modest")
	s.apply(t, odd("greedy", "", "", "resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 900, memory: 16Mi}}"))
	s.told(t, "Pod", "greedy", "Warning", "FailedReflection", "granted to cluster", "lower the limits")
}
