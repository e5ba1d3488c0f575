// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// badInput cannot work: it is refused or told where who wrote it looks, and nothing of it is done.
func badInput(t *testing.T) {
	for name, step := range map[string]func(*testing.T){
		"pods that cannot be": badPods, "more than granted": tooMuch, "commands": badCommands, "NamespaceOffloadings": badOffloadings,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t)
		})
	}
}

const oddPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {ANNOTATIONS}}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  terminationGracePeriodSeconds: 1
  SPEC
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, CONTAINER}]
`

func odd(name, annotations, spec, container string) string {
	return strings.NewReplacer("NAME", name, "ANNOTATIONS", annotations, "SPEC", spec, "CONTAINER", container).Replace(oddPod)
}

func badPods(t *testing.T) {
	s := offloaded(t)

	// It runs without, and says so.
	s.apply(t, odd("host-network", "", "hostNetwork: true", "ports: [{containerPort: 80}]"))
	s.running(t, "host-network")
	s.told(t, "Pod", "host-network", "Warning", "ReflectionIncomplete", "hostNetwork")
	s.becomes(t, podKind, "host-network", "spec: {hostNetwork: null, containers: [{ports: [{hostPort: null}]}]}")
	s.apply(t, odd("host-processes", "", "hostPID: true\n  hostIPC: true", ""))
	s.running(t, "host-processes")
	s.told(t, "Pod", "host-processes", "Warning", "ReflectionIncomplete", "hostPID", "hostIPC")
	s.becomes(t, podKind, "host-processes", "spec: {hostPID: null, hostIPC: null}")

	for name, one := range map[string]struct {
		manifest string
		words    []string
	}{
		"host-path":       {odd("host-path", "", "volumes: [{name: v, hostPath: {path: /etc}}]", ""), []string{"hostPath", "baseline"}},
		"privileged":      {odd("privileged", "", "", "securityContext: {privileged: true}"), []string{"privileged", "baseline"}},
		"host-port":       {odd("host-port", "", "", "ports: [{containerPort: 80, hostPort: 8099}]"), []string{"hostPort", "baseline"}},
		"preset":          {odd("preset", "liqo.io/anti-affinity-preset: bogus", "", ""), []string{"liqo.io/anti-affinity-preset", "bogus", "soft, hard or propagate"}},
		"preset-labels":   {odd("preset-labels", "liqo.io/anti-affinity-preset: hard, liqo.io/anti-affinity-labels: nothing", "", ""), []string{"liqo.io/anti-affinity-labels", "nothing"}},
		"preset-no-label": {odd("preset-no-label", "liqo.io/anti-affinity-preset: soft", "", ""), []string{"liqo.io/anti-affinity-preset", "label"}},
	} {
		s.apply(t, one.manifest)
		s.told(t, "Pod", name, append(one.words, "Warning", "FailedReflection")...)
		if found := s.there(t, podKind, name); found != nil {
			t.Errorf("pod %s runs in milan", name)
		}
		if found := s.there(t, shadowPodKind, name); found != nil {
			t.Errorf("a ShadowPod of %s is in milan", name)
		}
		s.shows(t, podKind, name, "{status: {phase: Pending}}")
		s.kubectl(t, "delete", "pod", name, "--timeout=30s")
	}

	said := rome.TryKubectl(odd("runtime", "", "runtimeClassName: nobodys", ""), "-n", s.name, "apply", "-f", "-")
	if said.Code == 0 || !strings.Contains(said.Err, `RuntimeClass "nobodys" not found`) {
		t.Errorf("an unknown runtime class: %s", said)
	}

	// What is missing in milan is missing as it would be here.
	s.apply(t, strings.Replace(odd("no-image", "", "", ""), env.ToolsImage, "playground.local/nobodys:1", 1))
	s.apply(t, odd("no-config", "", "", "envFrom: [{configMapRef: {name: nobodys}}]"))
	s.told(t, "Pod", "no-image", "Warning", "ErrImageNeverPull")
	s.shows(t, podKind, "no-image", "status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: ErrImageNeverPull}}}]}")
	s.shows(t, podKind, "no-config", "status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: CreateContainerConfigError}}}]}")
	s.told(t, "Pod", "no-config", "Warning", `configmap "nobodys" not found`)
	s.kubectl(t, "create", "configmap", "nobodys", "--from-literal=K=v")
	s.running(t, "no-config")
}

// tooMuch: more than the virtual node has is not scheduled; who binds the pod all the same hears what milan's scheduler says.
func tooMuch(t *testing.T) {
	s := offloaded(t)
	const huge = "resources: {requests: {cpu: 1000}}"
	s.apply(t, odd("huge", "", "", huge))
	s.told(t, "Pod", "huge", "FailedScheduling", "Insufficient cpu")
	if found := s.there(t, shadowPodKind, "huge"); found != nil {
		t.Error("a pod that is not scheduled has crossed")
	}
	s.apply(t, odd("bound", "", "nodeName: "+virtualNode, huge))
	s.told(t, "Pod", "bound", "FailedScheduling", "Insufficient cpu")
	s.shows(t, podKind, "bound", "{status: {phase: Pending}}")
	env.Eventually(t, soon, "the condition says why", func() (string, bool) {
		conditions := inJSON(env.At(s.here(t, podKind, "bound").Object, "status.conditions"))
		return conditions, strings.Contains(conditions, `"Unschedulable"`) && strings.Contains(conditions, "Insufficient cpu")
	})
	s.apply(t, odd("claims", "", "volumes: [{name: v, persistentVolumeClaim: {claimName: nobodys}}]", ""))
	s.told(t, "Pod", "claims", "FailedScheduling", `persistentvolumeclaim "nobodys" not found`)
}

func badCommands(t *testing.T) {
	name := newNamespace(t)
	for args, wanted := range map[string][]string{
		"offload namespace NAME -l 'a in ('":                         {"selector", "a in ("},
		"offload namespace NAME -l ''":                               {"selector", "is empty"},
		"offload namespace NAME --pod-offloading-strategy Anywhere":  {"Anywhere", "LocalAndRemote"},
		"offload namespace NAME --namespace-mapping-strategy Random": {"Random", "EnforceSameName"},
		"offload namespace NAME --output xml":                        {"xml"},
		"offload namespace nobodys-namespace":                        {"nobodys-namespace", "does not exist"},
		"offload namespace kube-system":                              {"kube-system", "cannot be offloaded"},
		"offload namespace liqo":                                     {"liqo", "cannot be offloaded"},
		"offload namespace NAME other":                               {"one namespace"},
		"offload namespace":                                          {"one namespace"},
		"offload":                                                    {"offload", "namespace NAME"},
		"unoffload namespace NAME":                                   {"is not offloaded"},
	} {
		said := rome.TryLiqoctl(words(strings.ReplaceAll(args, "NAME", name))...)
		for _, word := range wanted {
			if said.Code == 0 || !strings.Contains(said.Err, word) {
				t.Errorf("%q is not said: %s", word, said)
			}
		}
	}
	for _, ns := range []string{name, "kube-system", "liqo"} {
		if found := object(t, rome, offloadingKind, ns, "offloading"); found != nil {
			t.Errorf("namespace %s is offloaded", ns)
		}
	}
	if found := object(t, rome, namespaceKind, "", name); found.GetLabels()["liqo.io/scheduling-enabled"] != "" {
		t.Errorf("the namespace is marked: %v", found.GetLabels())
	}

	rome.Liqoctl(t, "offload", "namespace", name)
	said := rome.TryLiqoctl("offload", "namespace", name, "--namespace-mapping-strategy", "EnforceSameName")
	if said.Code == 0 || !strings.Contains(said.Err, "cannot be changed") {
		t.Errorf("another mapping: %s", said)
	}
	if found := object(t, rome, offloadingKind, name, "offloading"); env.At(found.Object, "spec.namespaceMappingStrategy") != "DefaultName" {
		t.Error("the mapping has changed")
	}
}

func badOffloadings(t *testing.T) {
	name := newNamespace(t)
	apply := func(called, spec string) env.Result {
		return rome.TryKubectl(fmt.Sprintf("{apiVersion: offloading.liqo.io/v1alpha1, kind: NamespaceOffloading, metadata: {name: %s, namespace: %s}, spec: %s}", called, name, spec), "apply", "-f", "-")
	}
	refused := func(said env.Result, words ...string) {
		t.Helper()
		for _, word := range words {
			if said.Code == 0 || !strings.Contains(said.Err, word) {
				t.Errorf("%q is not said: %s", word, said)
			}
		}
	}
	refused(apply("other", "{}"), "must be called 'offloading'")
	refused(apply("offloading", "{podOffloadingStrategy: Anywhere}"), "podOffloadingStrategy", "Anywhere")
	refused(apply("offloading", "{clusterSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near, values: [b]}]}]}}"), "clusterSelector", "Near")
	refused(apply("offloading", "{clusterSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}"), "clusterSelector")
	refused(apply("offloading", "{clusterSelector: {nodeSelectorTerms: [{}]}}"), "nodeSelectorTerms[0] says nothing")
	if all, err := rome.Objects(offloadingKind, name); err != nil || len(all) > 0 {
		t.Errorf("%d NamespaceOffloadings are there after all were refused (%v)", len(all), err)
	}
	if said := apply("offloading", "{}"); said.Code != 0 {
		t.Fatal(said)
	}
	refused(apply("second", "{}"), "must be called 'offloading'")
	refused(apply("offloading", "{namespaceMappingStrategy: EnforceSameName}"), "namespaceMappingStrategy cannot be changed")
	said := apply("offloading", "{podOffloadingStrategy: Remote}")
	if said.Code != 0 || !strings.Contains(said.Err, "more restrictive") {
		t.Errorf("no warning that pods stay where they are: %s", said)
	}
}
