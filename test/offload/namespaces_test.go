// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
)

// deployment is a Deployment whose pods may run in both clusters.
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

// TestNamespaces tests names, strategies, selectors and the end of offloaded namespaces.
func TestNamespaces(t *testing.T) {
	together(t)
	for name, step := range map[string]func(*testing.T){
		"default name": defaultName, "same name": sameName, "long name": longName, "Local": localOnly, "Remote": remoteOnly, "LocalAndRemote": localAndRemote,
		"cluster selector": clusterSelector, "all in one command": allInOneCommand, "name is taken": nameTaken,
		"remote namespace is deleted": remoteDeleted, "unoffload": unoffload,
		"unoffload refuses": unoffloadRefuses,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t)
		})
	}
}

func defaultName(t *testing.T) {
	s := offload(t)
	tenant := milan.Kubectl(
		t, "get", "namespaces", "-l", "discovery.liqo.io/tenant-namespace=true,discovery.liqo.io/cluster-id="+identity(t, rome), "-o",
		"jsonpath={.items[*].metadata.name}",
	)
	if want := s.name + strings.TrimPrefix(tenant, "liqo-tenant"); s.remote != want || !strings.HasPrefix(tenant, "liqo-tenant-rome-") {
		t.Errorf("namespace %s has the name %s in milan, want %s", s.name, s.remote, want)
	}
	wantObject(t, milan, namespaceKind, "", s.remote, fmt.Sprintf(`
metadata:
  annotations: {liqo.io/managed-by-namespace-map: '~liqo-tenant-rome-.*/.+', liqo.io/original-name: %s}
  labels: {liqo.io/remote-cluster-id: ROMEID}
`, s.name))
	wantObject(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: 'true'}}}")
	if role := milan.Kubectl(t, "-n", s.remote, "get", "rolebinding", tenant, "-o", "jsonpath={.roleRef.name}"); role != "liqo-virtual-kubelet-remote" {
		t.Errorf("rome's role in the remote namespace is %s", role)
	}
	s.wantLocal(t, offloadingKind, "offloading", `
spec: {namespaceMappingStrategy: DefaultName, podOffloadingStrategy: LocalAndRemote}
status: {offloadingPhase: Ready, observedGeneration: 1, remoteNamespaceName: '*', remoteNamespacesConditions: '*'}
`)
	conditions := inJSON(fields.At(s.local(t, offloadingKind, "offloading").Object, "status.remoteNamespacesConditions"))
	for _, want := range []string{`"milan-`, `"OffloadingRequired"`, `"ClusterSelected"`, `"NamespaceCreated"`} {
		if !strings.Contains(conditions, want) {
			t.Errorf("%s is not in the conditions %s", want, conditions)
		}
	}
}

func sameName(t *testing.T) {
	s := offload(t, "--namespace-mapping-strategy", "EnforceSameName")
	if s.remote != s.name {
		t.Fatalf("namespace %s has the name %s in milan", s.name, s.remote)
	}
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	s.running(t, "p")
	s.wantRemote(t, podKind, "p", "{status: {phase: Running}}")
}

func longName(t *testing.T) {
	short := newNamespace(t) // prefix of the long names
	var remotes []string
	for _, end := range []string{"a", "b"} {
		name := short + "-" + strings.Repeat("x", 60-len(short)) + "-" + end
		rome.Kubectl(t, "create", "namespace", name)
		deleteAfterwards(t, rome, name)
		rome.Liqoctl(t, "offload", "namespace", name)
		s := namespace{name, remoteName(t, name)}
		if len(s.remote) > 63 {
			t.Errorf("%s is too long", s.remote)
		}
		remotes = append(remotes, s.remote)
		s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
		s.wantRemote(t, configMapKind, "c", "{}")
		rome.Liqoctl(t, "unoffload", "namespace", name)
		rome.Liqoctl(t, "offload", "namespace", name)
		if second := remoteName(t, name); second != s.remote {
			t.Errorf("namespace %s had the name %s in milan, and then %s", name, s.remote, second)
		}
	}
	if remotes[0] == remotes[1] {
		t.Errorf("two namespaces have the same remote name %s", remotes[0])
	}
}

// webPods returns how many of the Deployment's pods are on each node, and how many are Ready. It ignores pods that failed because the offloading
// to their cluster ended: others replace them.
func webPods(s namespace) (nodes map[string]int, ready int, err error) {
	all, err := rome.Objects(podKind, s.name)
	nodes = map[string]int{}
	for _, pod := range all {
		if pod.GetLabels()["app"] != "web" || fields.At(pod.Object, "status.reason") == "OffloadingAborted" {
			continue
		}
		node, _ := fields.At(pod.Object, "spec.nodeName").(string)
		nodes[node]++
		conditions, _ := fields.At(pod.Object, "status.conditions").([]any)
		if slices.ContainsFunc(conditions, func(one any) bool {
			condition, _ := one.(map[string]any)
			return condition["type"] == "Ready" && condition["status"] == "True"
		}) {
			ready++
		}
	}
	return nodes, ready, err
}

// nodesOf waits until all the Deployment's pods are Ready, and returns how many are on each node.
func nodesOf(t *testing.T, s namespace, pods int) (seen map[string]int) {
	t.Helper()
	env.Eventually(t, env.Hang, fmt.Sprintf("%d pods are Ready", pods), func() (string, bool) {
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
	s := offload(t, "--pod-offloading-strategy", "Local")
	wantObject(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: null}}}")
	s.apply(t, deployment)
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 0 {
		t.Errorf("pods run on %v", nodes)
	}
	s.apply(t, "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}")
	s.wantRemote(t, serviceKind, "web", "{spec: {ports: [{port: 80}]}}")
	env.Eventually(t, env.Hang, "four endpoints are in milan", func() (string, bool) {
		all, err := milan.Objects(sliceKind, s.remote)
		n := 0
		for _, slice := range all {
			endpoints, _ := slice.Object["endpoints"].([]any)
			n += len(endpoints)
		}
		return fmt.Sprintf("%d endpoints, %v", n, err), n == 4
	})
	if all, err := milan.Objects(podKind, s.remote); err != nil || len(all) > 0 {
		t.Errorf("%d pods are in milan (%v)", len(all), err)
	}

	// The change from Local to Remote excludes nodes as well, so it warns.
	result := rome.Liqoctl(t, "offload", "namespace", s.name, "--pod-offloading-strategy", "Remote")
	if !strings.Contains(result.Out+result.Err, "more restrictive") {
		t.Errorf("no warning that running pods do not move: %s", result)
	}
	wantObject(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: 'true'}}}")
	s.kubectl(t, "rollout", "restart", "deployment/web")
	env.Eventually(t, env.Hang, "all pods have moved", func() (string, bool) {
		all, err := rome.Objects(podKind, s.name)
		n := 0
		for _, pod := range all {
			if fields.At(pod.Object, "spec.nodeName") == virtualNode && fields.At(pod.Object, "status.phase") == "Running" {
				n++
			}
		}
		return fmt.Sprintf("%d of %d pods, %v", n, len(all), err), n == 4 && len(all) == 4
	})
	rome.Liqoctl(t, "offload", "namespace", s.name, "--pod-offloading-strategy", "Local")
	wantObject(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: null}}}")
}

func remoteOnly(t *testing.T) {
	s := offload(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, deployment)
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 4 {
		t.Errorf("pods run on %v", nodes)
	}
	s.kubectl(t, "rollout", "status", "deployment/web", timeout)
}

func localAndRemote(t *testing.T) {
	s := offload(t)
	local := strings.Replace(plainPod, "nodeSelector: {liqo.io/type: virtual-node}", "affinity: {nodeAffinity: "+
		"{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/type, operator: DoesNotExist}]}]}}}", 1)
	s.apply(t, strings.ReplaceAll(local, "NAME", "local"))
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "remote"))
	s.running(t, "local", "remote")
	if node := fields.At(s.local(t, podKind, "local").Object, "spec.nodeName"); node == virtualNode {
		t.Error("the local pod is remote")
	}
	if found := s.inMilan(t, podKind, "local"); found != nil {
		t.Error("the local pod is in milan as well")
	}
	for _, pod := range []string{"local", "remote"} {
		tolerations := inJSON(fields.At(s.local(t, podKind, pod).Object, "spec.tolerations"))
		if !strings.Contains(tolerations, `"virtual-node.liqo.io/not-allowed"`) {
			t.Errorf("tolerations of %s are %s", pod, tolerations)
		}
	}
}

func clusterSelector(t *testing.T) {
	s := offload(t, "-l", "liqo.io/remote-cluster-id=none")
	none := rome.Liqoctl(t, "offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=none")
	if !strings.Contains(none.Out+none.Err, "no cluster was selected") {
		t.Errorf("the output does not mention that no cluster was selected: %s", none)
	}
	s.wantLocal(t, offloadingKind, "offloading", "{status: {offloadingPhase: NoClusterSelected}}")
	if found := object(t, milan, namespaceKind, "", s.remote); found != nil {
		t.Error("a namespace without a selected cluster has a remote namespace")
	}
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "waits"))
	s.wantEvent(t, "Pod", "waits", "FailedScheduling")
	s.apply(t, strings.Replace(deployment, "replicas: 4", "replicas: 2", 1)) // its pods may run in rome
	if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 0 {
		t.Errorf("pods run on %v, which was not selected", nodes)
	}

	rome.Liqoctl(
		t, "offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=none", "-l",
		"liqo.io/type in (virtual-node),liqo.io/remote-cluster-id="+identity(t, milan),
	)
	wantObject(t, milan, namespaceKind, "", s.remote, "{status: {phase: Active}}")
	s.kubectl(t, "delete", "pod", "waits") // its affinity was set at its creation
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "waits"))
	s.running(t, "waits")

	rome.Liqoctl(t, "offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=none")
	wantGone(t, milan, namespaceKind, "", s.remote)
	s.wantLocal(t, podKind, "waits", "{status: {phase: Failed, reason: OffloadingAborted}}")
}

// allInOneCommand: the strategy applies to every pod, also to those that are created at the moment of the offloading.
func allInOneCommand(t *testing.T) {
	for range 3 {
		mu.Lock()
		name := fmt.Sprintf("offload-%d-race", len(names))
		names = append(names, name)
		mu.Unlock()
		deleteAfterwards(t, rome, name)
		rome.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}\n---\n"+
			"{apiVersion: offloading.liqo.io/v1alpha1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: "+
			name+"}, spec: {podOffloadingStrategy: Remote}}\n---"+
			strings.Replace(deployment, "{name: web}", "{name: web, namespace: "+name+"}", 1))
		env.Eventually(t, env.Hang, "the namespace has a remote name", func() (string, bool) {
			found := object(t, rome, offloadingKind, name, "offloading")
			return "", found != nil && fields.At(found.Object, "status.remoteNamespaceName") != nil
		})
		if nodes := nodesOf(t, namespace{name, remoteName(t, name)}, 4); nodes[virtualNode] != 4 {
			t.Errorf("pods run on %v, want all of them on %s", nodes, virtualNode)
		}
	}
}

// nameTaken: rome does not use a namespace of the same name that milan has of its own.
func nameTaken(t *testing.T) {
	name := newNamespace(t)
	milan.Kubectl(t, "create", "namespace", name)
	deleteAfterwards(t, milan, name)
	milan.Kubectl(t, "-n", name, "create", "configmap", "precious", "--from-literal=k=v")
	before := object(t, milan, namespaceKind, "", name).GetResourceVersion()
	result := rome.TryLiqoctl("offload", "namespace", name, "--namespace-mapping-strategy", "EnforceSameName")
	if result.Code == 0 || !strings.Contains(result.Err, "AllFailed") || !strings.Contains(result.Err, "was not made for this cluster") {
		t.Errorf("offload with a name that is taken: %s", result)
	}
	s := namespace{name, name}
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: from-rome}}")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "waits"))
	s.wantLocal(t, offloadingKind, "offloading", "{status: {offloadingPhase: AllFailed}}")
	s.wantLocal(t, podKind, "waits", "{status: {phase: Pending, reason: OffloadingBackOff}}")
	for _, kind := range []string{podKind, configMapKind} {
		all, err := milan.Objects(kind, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if one.GetName() != "precious" && one.GetName() != "kube-root-ca.crt" {
				t.Errorf("%s %s was created in a namespace of milan's own", kind, one.GetName())
			}
		}
	}
	if after := object(t, milan, namespaceKind, "", name); after == nil || after.GetResourceVersion() != before {
		t.Errorf("the namespace of milan was changed: %s", inJSON(after))
	}
	milan.Kubectl(t, "delete", "namespace", name, timeout)
	start := time.Now()
	s.wantLocal(t, offloadingKind, "offloading", "{status: {offloadingPhase: Ready}}")
	clusters.Measure("name becomes free to phase Ready", "%.1f s", time.Since(start).Seconds())
	s.running(t, "waits")
	s.wantRemote(t, configMapKind, "from-rome", "{}")
}

// remoteDeleted: an administrator of milan deletes the remote namespace with all its objects.
func remoteDeleted(t *testing.T) {
	s := offload(t)
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: "+
		"web}, spec: {selector: {app: x}, ports: [{port: 80}]}}")
	s.running(t, "p")
	local, remote := s.local(t, podKind, "p").GetUID(), object(t, milan, namespaceKind, "", s.remote).GetUID()
	milan.Kubectl(t, "delete", "namespace", s.remote, timeout)
	start := time.Now()
	env.Eventually(t, env.Hang, "the remote namespace is back", func() (string, bool) {
		now := object(t, milan, namespaceKind, "", s.remote)
		return "", now != nil && now.GetUID() != remote && fields.At(now.Object, "status.phase") == "Active"
	})
	s.wantRemote(t, configMapKind, "c", "{data: {k: v}}")
	s.wantRemote(t, serviceKind, "web", "{spec: {ports: [{port: 80}]}}")
	s.wantRemote(t, podKind, "p", "{status: {phase: Running}}")
	s.wantLocal(t, podKind, "p", "{status: {phase: Running, containerStatuses: [{ready: true, restartCount: 1}]}}")
	clusters.Measure("remote namespace deleted to its pod Running again", "%.1f s", time.Since(start).Seconds())
	if now := s.local(t, podKind, "p").GetUID(); now != local {
		t.Errorf("the pod in rome has been replaced")
	}
}

// unoffload leaves nothing in milan, and nothing of Liqo in rome. Controllers replace their pods by local ones.
func unoffload(t *testing.T) {
	s := offload(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, deployment)
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 4 {
		t.Fatalf("pods run on %v, want all of them on %s", nodes, virtualNode)
	}
	// Running pods stay in milan, and new ones may run in both clusters.
	rome.Liqoctl(t, "offload", "namespace", s.name, "--pod-offloading-strategy", "LocalAndRemote")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "p"))
	s.running(t, "p")
	if nodes := nodesOf(t, s, 4); nodes[virtualNode] != 4 {
		t.Errorf("running pods have moved after the change to LocalAndRemote: %v", nodes)
	}
	result := rome.Liqoctl(t, "unoffload", "namespace", s.name)
	for _, line := range []string{
		`Offloading of namespace "` + s.name + `" correctly disabled`, "Unoffloading completed successfully", "To be deleted in cluster milan",
	} {
		if !strings.Contains(result.Out+result.Err, line) {
			t.Errorf("the output lacks %q: %s", line, result)
		}
	}
	if found := object(t, milan, namespaceKind, "", s.remote); found != nil {
		t.Errorf("unoffload has returned, but namespace %s still exists in milan", s.remote)
	}
	wantObject(t, rome, namespaceKind, "", s.name, "{metadata: {labels: {liqo.io/scheduling-enabled: null}}}")
	s.wantLocal(t, podKind, "p", "{status: {phase: Failed, reason: OffloadingAborted}}")
	env.Eventually(t, env.Hang, "the Deployment's pods are Ready in rome", func() (string, bool) {
		seen, ready, err := webPods(s)
		return fmt.Sprintf("%d are Ready, on %v, %v", ready, seen, err), ready == 4 && seen[virtualNode] == 0
	})
	env.Eventually(t, env.Hang, "no RoleBindings are left in the namespace", func() (string, bool) {
		left := s.kubectl(t, "get", "rolebindings", "-o", "name")
		return left, left == ""
	})
	if second := rome.TryLiqoctl("unoffload", "namespace", s.name); second.Code == 0 || !strings.Contains(second.Err, "is not offloaded") {
		t.Errorf("unoffload of a namespace that is not offloaded: %s", second)
	}
	s.kubectl(t, "delete", "deployment", "web")
	s.kubectl(t, "delete", "pod", "p", timeout)
}

// unoffloadRefuses: objects that a user of milan has created in the remote namespace are deleted only with --force, and claims not even then.
func unoffloadRefuses(t *testing.T) {
	s := offload(t)
	s.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")
	s.wantRemote(t, configMapKind, "c", "{}")
	s.remoteKubectl(t, "create", "configmap", "precious", "--from-literal=k=v")
	if result := milan.TryKubectl("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], "+
		"resources: {requests: {storage: 1Mi}}}}",
		"-n", s.remote, "apply", "-f", "-"); result.Code != 0 {
		t.Fatal(result)
	}
	for _, args := range [][]string{{"unoffload", "namespace", s.name}, {"offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=none"}} {
		result := rome.TryLiqoctl(args...)
		if result.Code == 0 || !strings.Contains(result.Err, "ConfigMap precious") ||
			!strings.Contains(result.Err, "(PersistentVolumeClaims) data") || !strings.Contains(result.Err, "--force") {
			t.Errorf("%v would delete objects of milan's users: %s", args, result)
		}
	}
	s.wantLocal(t, offloadingKind, "offloading", "{status: {offloadingPhase: Ready, observedGeneration: 1}, metadata: {generation: 1, deletionTimestamp: null}}")
	s.remoteKubectl(t, "get", "configmap", "precious", "c")
	s.remoteKubectl(t, "get", "persistentvolumeclaim", "data")
	rome.Liqoctl(t, "unoffload", "namespace", s.name, "--force")
	// The claim is not rome's to delete. Without it, the namespace goes.
	wantObject(t, milan, namespaceKind, "", s.remote, "{metadata: {deletionTimestamp: null, annotations: {liqo.io/kept-for-data: not-requested}}}")
	s.remoteKubectl(t, "get", "persistentvolumeclaim", "data")
	wantGone(t, milan, configMapKind, s.remote, "precious")
	s.remoteKubectl(t, "delete", "persistentvolumeclaim", "data", timeout)
	wantGone(t, milan, namespaceKind, "", s.remote)
}
