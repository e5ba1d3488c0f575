// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// deployment has pods that run anywhere.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never}]
`

const virtualNode = "liqo-milan"

// namespaces are what may be asked for a namespace, and what becomes of it.
func namespaces(t *testing.T) {
	for name, step := range map[string]func(*testing.T){
		"default name": defaultName, "same name": sameName, "long name": longName, "Local": localOnly, "Remote": remoteOnly, "LocalAndRemote": localAndRemote,
		"cluster selector": clusterSelector, "all in one command": allInOneCommand, "name is taken": nameTaken, "twin is deleted": twinDeleted, "unoffload": unoffload,
		"unoffload refuses": unoffloadRefuses,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t)
		})
	}
}

func defaultName(t *testing.T) {
	s := offloaded(t)
	tenant := milan.Kubectl(t, "get", "namespaces", "-l", "discovery.liqo.io/tenant-namespace=true,discovery.liqo.io/cluster-id="+identity(t, rome), "-o", "jsonpath={.items[*].metadata.name}")
	if want := s.name + strings.TrimPrefix(tenant, "liqo-tenant"); s.twin != want || !strings.HasPrefix(tenant, "liqo-tenant-rome-") {
		t.Errorf("namespace %s is called %s in milan, want %s", s.name, s.twin, want)
	}
	becomes(t, milan, namespaceKind, "", s.twin, fmt.Sprintf(`
metadata:
  annotations: {liqo.io/managed-by-namespace-map: '~liqo-tenant-rome-.*/.+', liqo.io/original-name: %s}
  labels: {liqo.io/remote-cluster-id: ROMEID}
`, s.name), soon)
	becomes(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: 'true'}}}", soon)
	if role := milan.Kubectl(t, "-n", s.twin, "get", "rolebinding", tenant, "-o", "jsonpath={.roleRef.name}"); role != "liqo-virtual-kubelet-remote" {
		t.Errorf("what rome may in the twin is %s", role)
	}
	s.shows(t, offloadingKind, "offloading", `
spec: {namespaceMappingStrategy: DefaultName, podOffloadingStrategy: LocalAndRemote}
status: {offloadingPhase: Ready, observedGeneration: 1, remoteNamespaceName: '*', remoteNamespacesConditions: '*'}
`)
	conditions := inJSON(env.At(s.here(t, offloadingKind, "offloading").Object, "status.remoteNamespacesConditions"))
	for _, want := range []string{`"milan-`, `"OffloadingRequired"`, `"ClusterSelected"`, `"NamespaceCreated"`} {
		if !strings.Contains(conditions, want) {
			t.Errorf("%s is not in the conditions %s", want, conditions)
		}
	}
}

func sameName(t *testing.T) {
	s := offloaded(t, "--namespace-mapping-strategy", "EnforceSameName")
	if s.twin != s.name {
		t.Fatalf("namespace %s is called %s in milan", s.name, s.twin)
	}
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	s.running(t, "p")
	s.becomes(t, podKind, "p", "{status: {phase: Running}}")
}

func longName(t *testing.T) {
	short := newNamespace(t) // names of long ones begin so
	var twins []string
	for _, end := range []string{"a", "b"} {
		name := short + "-" + strings.Repeat("x", 60-len(short)) + "-" + end
		rome.Kubectl(t, "create", "namespace", name)
		goes(t, rome, name)
		rome.Liqoctl(t, "offload", "namespace", name)
		s := space{name, twinOf(t, name)}
		if len(s.twin) > 63 {
			t.Errorf("%s is too long", s.twin)
		}
		twins = append(twins, s.twin)
		s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
		s.becomes(t, configMapKind, "c", "{}")
		rome.Liqoctl(t, "unoffload", "namespace", name)
		rome.Liqoctl(t, "offload", "namespace", name)
		if again := twinOf(t, name); again != s.twin {
			t.Errorf("namespace %s was called %s in milan, and then %s", name, s.twin, again)
		}
	}
	if twins[0] == twins[1] {
		t.Errorf("two namespaces are both called %s", twins[0])
	}
}

// webPods says how many of the Deployment's pods are on each node, and how many are Ready. Those that failed because their cluster was given up do
// not count: others take their place.
func webPods(s space) (nodes map[string]int, ready int, err error) {
	all, err := rome.Objects(podKind, s.name)
	nodes = map[string]int{}
	for _, pod := range all {
		if pod.GetLabels()["app"] != "web" || env.At(pod.Object, "status.reason") == "OffloadingAborted" {
			continue
		}
		node, _ := env.At(pod.Object, "spec.nodeName").(string)
		nodes[node]++
		conditions, _ := env.At(pod.Object, "status.conditions").([]any)
		if slices.ContainsFunc(conditions, func(one any) bool {
			condition, _ := one.(map[string]any)
			return condition["type"] == "Ready" && condition["status"] == "True"
		}) {
			ready++
		}
	}
	return nodes, ready, err
}

// nodesOf waits until all the Deployment's pods are Ready, and says how many are on each node.
func nodesOf(t *testing.T, s space, pods int) (seen map[string]int) {
	t.Helper()
	env.Eventually(t, started, fmt.Sprintf("%d pods are Ready", pods), func() (string, bool) {
		nodes, ready, err := webPods(s)
		total := 0
		for _, n := range nodes {
			total += n
		}
		seen = nodes
		return fmt.Sprintf("%d are Ready, on %v, %v", ready, nodes, err), err == nil && ready == pods && total == pods
	})
	return seen
}

func localOnly(t *testing.T) {
	s := offloaded(t, "--pod-offloading-strategy", "Local")
	becomes(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: null}}}", soon)
	s.apply(t, deployment)
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 0 {
		t.Errorf("pods run on %v", nodes)
	}
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}")
	s.becomes(t, serviceKind, "web", "{spec: {ports: [{port: 80}]}}")
	env.Eventually(t, started, "four endpoints are in milan", func() (string, bool) {
		all, err := milan.Objects(sliceKind, s.twin)
		n := 0
		for _, slice := range all {
			endpoints, _ := slice.Object["endpoints"].([]any)
			n += len(endpoints)
		}
		return fmt.Sprintf("%d endpoints, %v", n, err), n == 4
	})
	if all, err := milan.Objects(podKind, s.twin); err != nil || len(all) > 0 {
		t.Errorf("%d pods are in milan (%v)", len(all), err)
	}

	// More restrictive is the other way round, too.
	said := rome.Liqoctl(t, "offload", "namespace", s.name, "--pod-offloading-strategy", "Remote")
	if !strings.Contains(said.Out+said.Err, "more restrictive") {
		t.Errorf("no warning that pods stay where they are: %s", said)
	}
	becomes(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: 'true'}}}", soon)
	s.kubectl(t, "rollout", "restart", "deployment/web")
	env.Eventually(t, 2*started, "all pods have moved", func() (string, bool) {
		all, err := rome.Objects(podKind, s.name)
		n := 0
		for _, pod := range all {
			if env.At(pod.Object, "spec.nodeName") == virtualNode && env.At(pod.Object, "status.phase") == "Running" {
				n++
			}
		}
		return fmt.Sprintf("%d of %d pods, %v", n, len(all), err), n == 4 && len(all) == 4
	})
	rome.Liqoctl(t, "offload", "namespace", s.name, "--pod-offloading-strategy", "Local")
	becomes(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: null}}}", soon)
}

func remoteOnly(t *testing.T) {
	s := offloaded(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, deployment)
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 4 {
		t.Errorf("pods run on %v", nodes)
	}
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout=30s")
}

func localAndRemote(t *testing.T) {
	s := offloaded(t)
	local := strings.Replace(plainPod, "nodeSelector: {liqo.io/type: virtual-node}", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}", 1)
	s.apply(t, strings.ReplaceAll(local, "NAME", "local"))
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "remote"))
	s.running(t, "local", "remote")
	if node := env.At(s.here(t, podKind, "local").Object, "spec.nodeName"); node == virtualNode {
		t.Error("the local pod is remote")
	}
	if found := s.there(t, podKind, "local"); found != nil {
		t.Error("the local pod is in milan, too")
	}
	for _, pod := range []string{"local", "remote"} {
		tolerations := inJSON(env.At(s.here(t, podKind, pod).Object, "spec.tolerations"))
		if !strings.Contains(tolerations, `"virtual-node.liqo.io/not-allowed"`) {
			t.Errorf("tolerations of %s are %s", pod, tolerations)
		}
	}
}

func clusterSelector(t *testing.T) {
	s := offloaded(t, "-l", "liqo.io/remote-cluster-id=nobody")
	none := rome.Liqoctl(t, "offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=nobody")
	if !strings.Contains(none.Out+none.Err, "no cluster was selected") {
		t.Errorf("it does not say that no cluster was selected: %s", none)
	}
	s.shows(t, offloadingKind, "offloading", "{status: {offloadingPhase: NoClusterSelected}}")
	if found := object(t, milan, namespaceKind, "", s.twin); found != nil {
		t.Error("a twin was made of a namespace that nobody was to have")
	}
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "waits"))
	s.told(t, "Pod", "waits", "FailedScheduling")
	s.apply(t, strings.Replace(deployment, "replicas: 4", "replicas: 2", 1)) // may be local
	if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 0 {
		t.Errorf("pods run on %v, which was not selected", nodes)
	}

	rome.Liqoctl(t, "offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=nobody", "-l", "liqo.io/type in (virtual-node),liqo.io/remote-cluster-id="+identity(t, milan))
	becomes(t, milan, namespaceKind, "", s.twin, "{status: {phase: Active}}", soon)
	s.kubectl(t, "delete", "pod", "waits") // its affinity was written when it was made
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "waits"))
	s.running(t, "waits")

	rome.Liqoctl(t, "offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=nobody")
	vanishes(t, milan, namespaceKind, "", s.twin)
	s.shows(t, podKind, "waits", "{status: {phase: Failed, reason: OffloadingAborted}}")
}

// allInOneCommand: every pod obeys, also those that are made in the moment in which the namespace is offloaded.
func allInOneCommand(t *testing.T) {
	for range 3 {
		mu.Lock()
		name := fmt.Sprintf("rows-%d-race", len(names))
		names = append(names, name)
		mu.Unlock()
		goes(t, rome, name)
		rome.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}\n---\n"+
			"{apiVersion: offloading.liqo.io/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: "+name+"}, spec: {podOffloadingStrategy: Remote}}\n---"+
			strings.Replace(deployment, "{name: web}", "{name: web, namespace: "+name+"}", 1))
		env.Eventually(t, soon, "the namespace has a remote name", func() (string, bool) {
			found := object(t, rome, offloadingKind, name, "offloading")
			return "", found != nil && env.At(found.Object, "status.remoteNamespaceName") != nil
		})
		if nodes := nodesOf(t, space{name, twinOf(t, name)}, 4); nodes[virtualNode] != 4 {
			t.Errorf("pods run on %v, want all of them on %s", nodes, virtualNode)
		}
	}
}

// nameTaken: a namespace that milan has is none of rome's.
func nameTaken(t *testing.T) {
	name := newNamespace(t)
	milan.Kubectl(t, "create", "namespace", name)
	goes(t, milan, name)
	milan.Kubectl(t, "-n", name, "create", "configmap", "precious", "--from-literal=k=v")
	before := object(t, milan, namespaceKind, "", name).GetResourceVersion()
	said := rome.TryLiqoctl("offload", "namespace", name, "--namespace-mapping-strategy", "EnforceSameName")
	if said.Code == 0 || !strings.Contains(said.Err, "AllFailed") || !strings.Contains(said.Err, "was not made for this cluster") {
		t.Errorf("the name is taken, and the command says: %s", said)
	}
	s := space{name, name}
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "waits"))
	s.shows(t, offloadingKind, "offloading", "{status: {offloadingPhase: AllFailed}}")
	s.shows(t, podKind, "waits", "{status: {phase: Pending, reason: OffloadingBackOff}}")
	for _, kind := range []string{podKind, configMapKind} {
		all, err := milan.Objects(kind, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if one.GetName() != "precious" && one.GetName() != "kube-root-ca.crt" {
				t.Errorf("%s %s was put into a namespace of milan's own", kind, one.GetName())
			}
		}
	}
	if after := object(t, milan, namespaceKind, "", name); after == nil || after.GetResourceVersion() != before {
		t.Errorf("the namespace of milan was changed: %s", inJSON(after))
	}
	milan.Kubectl(t, "delete", "namespace", name, "--timeout=60s")
	began := time.Now()
	s.shows(t, offloadingKind, "offloading", "{status: {offloadingPhase: Ready}}")
	clusters.Measure("name becomes free to phase Ready", "%.1f s", time.Since(began).Seconds())
	s.running(t, "waits")
	s.becomes(t, configMapKind, "mine", "{}")
}

// twinDeleted: somebody in milan deletes the twin with all that is in it.
func twinDeleted(t *testing.T) {
	s := offloaded(t)
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: x}, ports: [{port: 80}]}}")
	s.running(t, "p")
	local, remote := s.here(t, podKind, "p").GetUID(), object(t, milan, namespaceKind, "", s.twin).GetUID()
	milan.Kubectl(t, "delete", "namespace", s.twin, "--timeout=60s")
	began := time.Now()
	env.Eventually(t, 2*started, "the twin is back", func() (string, bool) {
		now := object(t, milan, namespaceKind, "", s.twin)
		return "", now != nil && now.GetUID() != remote && env.At(now.Object, "status.phase") == "Active"
	})
	s.becomes(t, configMapKind, "c", "{data: {k: v}}")
	s.becomes(t, serviceKind, "web", "{spec: {ports: [{port: 80}]}}")
	s.becomes(t, podKind, "p", "{status: {phase: Running}}")
	s.shows(t, podKind, "p", "{status: {phase: Running, containerStatuses: [{ready: true, restartCount: 1}]}}")
	clusters.Measure("twin deleted to its pod Running again", "%.1f s", time.Since(began).Seconds())
	if now := s.here(t, podKind, "p").GetUID(); now != local {
		t.Errorf("the pod in rome is another one")
	}
}

// unoffload leaves nothing in milan, and nothing of ours in rome. What controllers want runs in rome.
func unoffload(t *testing.T) {
	s := offloaded(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, deployment)
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 4 {
		t.Fatalf("pods run on %v, want all of them on %s", nodes, virtualNode)
	}
	// What runs stays where it is, and what is made from now on may run anywhere.
	rome.Liqoctl(t, "offload", "namespace", s.name, "--pod-offloading-strategy", "LocalAndRemote")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	s.running(t, "p")
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 4 {
		t.Errorf("pods that run have moved when more was allowed: %v", nodes)
	}
	said := rome.Liqoctl(t, "unoffload", "namespace", s.name)
	for _, line := range []string{`Offloading of namespace "` + s.name + `" correctly disabled`, "Unoffloading completed successfully", "To be deleted in cluster milan"} {
		if !strings.Contains(said.Out+said.Err, line) {
			t.Errorf("it does not say %q: %s", line, said)
		}
	}
	if found := object(t, milan, namespaceKind, "", s.twin); found != nil {
		t.Errorf("the command has ended, but namespace %s is there in milan", s.twin)
	}
	becomes(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: null}}}", soon)
	s.shows(t, podKind, "p", "{status: {phase: Failed, reason: OffloadingAborted}}")
	env.Eventually(t, started, "the Deployment's pods are Ready in rome", func() (string, bool) {
		seen, ready, err := webPods(s)
		return fmt.Sprintf("%d are Ready, on %v, %v", ready, seen, err), ready == 4 && seen[virtualNode] == 0
	})
	env.Eventually(t, soon, "no rights are left in the namespace", func() (string, bool) {
		left := s.kubectl(t, "get", "rolebindings", "-o", "name")
		return left, left == ""
	})
	if again := rome.TryLiqoctl("unoffload", "namespace", s.name); again.Code == 0 || !strings.Contains(again.Err, "is not offloaded") {
		t.Errorf("unoffload of what is not offloaded: %s", again)
	}
	s.kubectl(t, "delete", "deployment", "web")
	s.kubectl(t, "delete", "pod", "p", "--timeout=30s")
}

// unoffloadRefuses: what somebody in milan has put into the twin is lost only if that is said.
func unoffloadRefuses(t *testing.T) {
	s := offloaded(t)
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
	s.becomes(t, configMapKind, "c", "{}")
	s.milan(t, "create", "configmap", "precious", "--from-literal=k=v")
	if said := milan.TryKubectl("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}",
		"-n", s.twin, "apply", "-f", "-"); said.Code != 0 {
		t.Fatal(said)
	}
	for _, args := range [][]string{{"unoffload", "namespace", s.name}, {"offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=nobody"}} {
		said := rome.TryLiqoctl(args...)
		if said.Code == 0 || !strings.Contains(said.Err, "ConfigMap precious") || !strings.Contains(said.Err, "(PersistentVolumeClaims) data") || !strings.Contains(said.Err, "--force") {
			t.Errorf("it is asked to destroy what it did not make, and says: %s", said)
		}
	}
	s.shows(t, offloadingKind, "offloading", "{status: {offloadingPhase: Ready, observedGeneration: 1}, metadata: {generation: 1, deletionTimestamp: null}}")
	s.milan(t, "get", "configmap", "precious", "c")
	s.milan(t, "get", "persistentvolumeclaim", "data")
	rome.Liqoctl(t, "unoffload", "namespace", s.name, "--force")
	if found := object(t, milan, namespaceKind, "", s.twin); found != nil {
		t.Errorf("the command has ended, but namespace %s is there in milan", s.twin)
	}
}
