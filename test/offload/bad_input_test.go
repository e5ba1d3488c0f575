// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/fields"
)

// TestBadInput: invalid input is refused, or reported on the object that its user reads, and has no effect.
func TestBadInput(t *testing.T) {
	installedAndPeered(t)
	for name, step := range map[string]func(*testing.T){
		"invalid pods": badPods, "more than granted": tooMuch, "commands": badCommands, "NamespaceOffloadings": badOffloadings,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t)
		})
	}
}

const podTemplate = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: {ANNOTATIONS}}
spec:
  nodeSelector: {liqo.io/type: virtual-node}
  terminationGracePeriodSeconds: 1
  SPEC
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, CONTAINER}]
`

func customPod(name, annotations, spec, container string) string {
	return strings.NewReplacer("NAME", name, "ANNOTATIONS", annotations, "SPEC", spec, "CONTAINER", container).Replace(podTemplate)
}

func badPods(t *testing.T) {
	s := offload(t)

	// Pods run without fields that do not exist in another cluster, and have an event about that.
	s.apply(t, customPod("host-network", "", "hostNetwork: true", "ports: [{containerPort: 80}]"))
	s.running(t, "host-network")
	s.wantEvent(t, "Pod", "host-network", "Warning", "ReflectionIncomplete", "hostNetwork")
	s.wantRemote(t, podKind, "host-network", "spec: {hostNetwork: null, containers: [{ports: [{hostPort: null}]}]}")
	s.apply(t, customPod("host-processes", "", "hostPID: true\n  hostIPC: true", ""))
	s.running(t, "host-processes")
	s.wantEvent(t, "Pod", "host-processes", "Warning", "ReflectionIncomplete", "hostPID", "hostIPC")
	s.wantRemote(t, podKind, "host-processes", "spec: {hostPID: null, hostIPC: null}")

	// Without these, a pod would have less isolation, or other devices or nodes, than it asked for.
	rome.Apply(t, "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: "+s.name+"}, handler: none}")
	t.Cleanup(func() { rome.Kubectl(t, "delete", "runtimeclass", s.name) })
	for name, one := range map[string]struct {
		manifest string
		words    []string
	}{
		"sandbox":    {customPod("sandbox", "", "runtimeClassName: "+s.name, ""), []string{"runtimeClassName", "runWithout"}},
		"host-path":  {customPod("host-path", "", "volumes: [{name: v, hostPath: {path: /etc}}]", ""), []string{"hostPath", "baseline"}},
		"privileged": {customPod("privileged", "", "", "securityContext: {privileged: true}"), []string{"privileged", "baseline"}},
		"host-port":  {customPod("host-port", "", "", "ports: [{containerPort: 80, hostPort: 8099}]"), []string{"hostPort", "baseline"}},
		"preset": {
			customPod("preset", "liqo.io/anti-affinity-preset: bogus", "", ""),
			[]string{"liqo.io/anti-affinity-preset", "bogus", "soft, hard or propagate"},
		},
		"preset-labels": {
			customPod("preset-labels", "liqo.io/anti-affinity-preset: hard, liqo.io/anti-affinity-labels: nothing", "", ""),
			[]string{"liqo.io/anti-affinity-labels", "nothing"},
		},
		"preset-no-label": {customPod("preset-no-label", "liqo.io/anti-affinity-preset: soft", "", ""), []string{"liqo.io/anti-affinity-preset", "label"}},
	} {
		s.apply(t, one.manifest)
		s.wantEvent(t, "Pod", name, append(one.words, "Warning", "FailedReflection")...)
		if found := s.inMilan(t, podKind, name); found != nil {
			t.Errorf("pod %s runs in milan", name)
		}
		if found := s.inMilan(t, shadowPodKind, name); found != nil {
			t.Errorf("a ShadowPod of %s is in milan", name)
		}
		s.wantLocal(t, podKind, name, "{status: {phase: Pending}}")
		s.kubectl(t, "delete", "pod", name, timeout)
	}

	result := rome.TryKubectl(customPod("runtime", "", "runtimeClassName: missing", ""), "-n", s.name, "apply", "-f", "-")
	if result.Code == 0 || !strings.Contains(result.Err, `RuntimeClass "missing" not found`) {
		t.Errorf("an unknown runtime class: %s", result)
	}

	// An image or ConfigMap that milan lacks is reported as for a local pod.
	s.apply(t, strings.Replace(customPod("no-image", "", "", ""), env.ToolsImage, "playground.local/missing:1", 1))
	s.apply(t, customPod("no-config", "", "", "envFrom: [{configMapRef: {name: missing}}]"))
	s.wantEvent(t, "Pod", "no-image", "Warning", "ErrImageNeverPull")
	s.wantLocal(t, podKind, "no-image", "status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: ErrImageNeverPull}}}]}")
	s.wantLocal(t, podKind, "no-config", "status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: CreateContainerConfigError}}}]}")
	s.wantEvent(t, "Pod", "no-config", "Warning", `configmap "missing" not found`)
	s.kubectl(t, "create", "configmap", "missing", "--from-literal=K=v")
	s.running(t, "no-config")
}

// tooMuch: a pod that requests more than the virtual node has is not scheduled. If it is bound all the same, milan refuses what exceeds the grant. What
// the grant allows but no node of milan can run gets the event of milan's scheduler.
func tooMuch(t *testing.T) {
	s := offload(t)
	const huge = "resources: {requests: {cpu: 1000}}"
	s.apply(t, customPod("huge", "", "", huge))
	s.wantEvent(t, "Pod", "huge", "FailedScheduling", "Insufficient cpu")
	if found := s.inMilan(t, shadowPodKind, "huge"); found != nil {
		t.Error("a pod that is not scheduled has a ShadowPod")
	}
	s.apply(t, customPod("beyond", "", "nodeName: "+virtualNode, huge))
	s.wantEvent(t, "Pod", "beyond", "FailedReflection", "granted to cluster", "lower the requests")
	spread := "topologySpreadConstraints: [{maxSkew: 1, topologyKey: no-node-has-this, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]"
	s.apply(t, customPod("bound", "liqo.io/topology-spread-preset: propagate", "nodeName: "+virtualNode+"\n  "+spread, ""))
	s.wantEvent(t, "Pod", "bound", "FailedScheduling", "topology spread constraints")
	s.wantLocal(t, podKind, "bound", "{status: {phase: Pending}}")
	env.Eventually(t, env.Hang, "the condition has the reason", func() (string, bool) {
		conditions := inJSON(fields.At(s.local(t, podKind, "bound").Object, "status.conditions"))
		return conditions, strings.Contains(conditions, `"Unschedulable"`) && strings.Contains(conditions, "topology spread constraints")
	})
	s.apply(t, customPod("preferred", "", "nodeName: "+virtualNode+"\n  "+spread, "")) // a constraint for the nodes of rome
	s.running(t, "preferred")
	s.apply(t, customPod("claims", "", "volumes: [{name: v, persistentVolumeClaim: {claimName: missing}}]", ""))
	s.wantEvent(t, "Pod", "claims", "FailedScheduling", `persistentvolumeclaim "missing" not found`)
}

func badCommands(t *testing.T) {
	name := newNamespace(t)
	for args, wanted := range map[string][]string{
		"offload namespace NAME -l 'a in ('":                         {"selector", "a in ("},
		"offload namespace NAME -l ''":                               {"selector", "is empty"},
		"offload namespace NAME --pod-offloading-strategy Anywhere":  {"Anywhere", "LocalAndRemote"},
		"offload namespace NAME --namespace-mapping-strategy Random": {"Random", "EnforceSameName"},
		"offload namespace NAME --output xml":                        {"xml"},
		"offload namespace missing-namespace":                        {"missing-namespace", "does not exist"},
		"offload namespace kube-system":                              {"kube-system", "cannot be offloaded"},
		"offload namespace liqo":                                     {"liqo", "cannot be offloaded"},
		"offload namespace NAME other":                               {"one namespace"},
		"offload namespace":                                          {"one namespace"},
		"offload":                                                    {"offload", "namespace NAME"},
		"unoffload namespace NAME":                                   {"is not offloaded"},
	} {
		result := rome.TryLiqoctl(splitWords(strings.ReplaceAll(args, "NAME", name))...)
		for _, word := range wanted {
			if result.Code == 0 || !strings.Contains(result.Err, word) {
				t.Errorf("%q is missing in: %s", word, result)
			}
		}
	}
	for _, ns := range []string{name, "kube-system", "liqo"} {
		if found := object(t, rome, offloadingKind, ns, "offloading"); found != nil {
			t.Errorf("namespace %s is offloaded", ns)
		}
	}
	if found := object(t, rome, namespaceKind, "", name); found.GetLabels()["liqo.io/scheduling-enabled"] != "" {
		t.Errorf("the namespace has the label: %v", found.GetLabels())
	}

	rome.Liqoctl(t, "offload", "namespace", name)
	result := rome.TryLiqoctl("offload", "namespace", name, "--namespace-mapping-strategy", "EnforceSameName")
	if result.Code == 0 || !strings.Contains(result.Err, "cannot be changed") {
		t.Errorf("another mapping: %s", result)
	}
	if found := object(t, rome, offloadingKind, name, "offloading"); fields.At(found.Object, "spec.namespaceMappingStrategy") != "DefaultName" {
		t.Error("the mapping has changed")
	}
}

func badOffloadings(t *testing.T) {
	name := newNamespace(t)
	apply := func(object, spec string) execution.Result {
		return rome.TryKubectl(
			fmt.Sprintf("{apiVersion: offloading.liqo.io/v1alpha1, kind: NamespaceOffloading, metadata: {name: %s, namespace: %s}, spec: %s}", object, name, spec),
			"apply", "-f", "-",
		)
	}
	refused := func(result execution.Result, words ...string) {
		t.Helper()
		for _, word := range words {
			if result.Code == 0 || !strings.Contains(result.Err, word) {
				t.Errorf("%q is missing in: %s", word, result)
			}
		}
	}
	refused(apply("other", "{}"), "must be called 'offloading'")
	refused(apply("offloading", "{podOffloadingStrategy: Anywhere}"), "podOffloadingStrategy", "Anywhere")
	refused(
		apply("offloading", "{clusterSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near, values: [b]}]}]}}"),
		"clusterSelector", "Near",
	)
	refused(apply("offloading", "{clusterSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}"), "clusterSelector")
	refused(apply("offloading", "{clusterSelector: {nodeSelectorTerms: [{}]}}"), "nodeSelectorTerms[0] is empty")
	if all, err := rome.Objects(offloadingKind, name); err != nil || len(all) > 0 {
		t.Errorf("%d NamespaceOffloadings exist after all were refused (%v)", len(all), err)
	}
	if result := apply("offloading", "{}"); result.Code != 0 {
		t.Fatal(result)
	}
	refused(apply("second", "{}"), "must be called 'offloading'")
	refused(apply("offloading", "{namespaceMappingStrategy: EnforceSameName}"), "namespaceMappingStrategy cannot be changed")
	result := apply("offloading", "{podOffloadingStrategy: Remote}")
	if result.Code != 0 || !strings.Contains(result.Err, "more restrictive") {
		t.Errorf("no warning that running pods do not move: %s", result)
	}
}
