// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// apart is a StatefulSet of two, one pod in each cluster, whose claims Kubernetes deletes with their pods.
const apart = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 25Mi}}}}]
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      affinity:
        nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODES]}]}]}}
        podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: db}}, topologyKey: kubernetes.io/hostname}]}
      containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sleep, infinity], volumeMounts: [{name: data, mountPath: /data}]}]
`

// temporary is a pod with a generic ephemeral volume.
const temporary = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: NODE}
  volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 25Mi}}}}}}]
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sleep, infinity], volumeMounts: [{name: scratch, mountPath: /data}]}]
`

// TestWorkloadClaims: claims that Kubernetes makes and deletes for workloads, and claims whose data their class keeps.
func TestWorkloadClaims(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it makes six claims; use -long")
	}
	installedAndPeered(t)
	worker := rome.Nodes[len(rome.Nodes)-1].Name
	t.Run("StatefulSet", func(t *testing.T) {
		t.Parallel()
		s := offload(t)
		s.apply(t, strings.ReplaceAll(apart, "NODES", worker+", "+virtualNode))
		env.Eventually(t, env.Hang, "both replicas are ready", func() (string, bool) {
			now := s.kubectl(t, "get", "statefulset", "db", "-o", "jsonpath={.status.readyReplicas}")
			return now, now == "2"
		})
		if nodes := strings.Fields(s.kubectl(t, "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")); !slices.Contains(nodes, worker) ||
			!slices.Contains(nodes, virtualNode) {
			t.Errorf("the replicas run on %v", nodes)
		}
		for _, pod := range []string{"db-0", "db-1"} {
			s.write(t, pod, pod)
			s.kubectl(t, "delete", "pod", pod, timeout)
			env.Eventually(t, env.Hang, pod+" is created again", func() (string, bool) {
				now := rome.TryKubectl("", "-n", s.name, "get", "pod", pod)
				return now.String(), now.Code == 0
			})
			s.running(t, pod)
			if text := s.read(t, pod); text != pod {
				t.Errorf("pod %s reads %q", pod, text)
			}
		}
		if copies := s.copies(t); len(copies) != 2 {
			t.Errorf("the data is in %v", copies)
		}
		s.kubectl(t, "scale", "statefulset", "db", "--replicas=1")
		wantGone(t, rome, claimKind, s.name, "data-db-1")
		env.Eventually(t, env.Hang, "the data of the replica is deleted", func() (string, bool) { now := s.copies(t); return fmt.Sprint(now), len(now) == 1 })
		s.kubectl(t, "delete", "statefulset", "db")
		wantGone(t, rome, claimKind, s.name, "data-db-0")
		env.Eventually(t, env.Hang, "all data is deleted", func() (string, bool) { now := s.copies(t); return fmt.Sprint(now), len(now) == 0 })
	})
	t.Run("generic ephemeral volumes", func(t *testing.T) {
		t.Parallel()
		s := offload(t)
		for name, node := range map[string]string{"here": worker, "there": virtualNode} {
			s.apply(t, strings.NewReplacer("NAME", name, "NODE", node).Replace(temporary))
		}
		s.running(t, "here", "there")
		s.wantRemote(t, claimKind, "there-scratch", "{status: {phase: Bound}}")
		if copies := s.copies(t); len(copies) != 2 {
			t.Errorf("the data is in %v", copies)
		}
		s.kubectl(t, "delete", "pod", "here", "there", timeout)
		env.Eventually(t, env.Hang, "all data is deleted", func() (string, bool) { now := s.copies(t); return fmt.Sprint(now), len(now) == 0 })
	})
	t.Run("Retain", func(t *testing.T) {
		t.Parallel()
		s := offload(t)
		class := s.name + "-kept"
		if result := rome.TryKubectl(strings.NewReplacer("NAME", class, "MORE", "reclaimPolicy: Retain").
			Replace(storageClass), "apply", "-f", "-"); result.Code != 0 {
			t.Fatal(result)
		}
		t.Cleanup(func() { rome.Kubectl(t, "delete", "storageclass", class) })
		volumes := map[string]string{}
		for name, where := range map[string]string{"here": "DoesNotExist", "there": "Exists"} {
			s.apply(t, strings.NewReplacer("NAME", name, "storageClassName: liqo", "storageClassName: "+class).Replace(claim))
			s.mount(t, name, where)
			volumes[name] = s.volumeOf(t, name)
			s.kubectl(t, "delete", "pod", name, timeout)
			s.kubectl(t, "delete", claimKindName, name, timeout)
		}
		for _, volume := range volumes {
			wantObject(t, rome, volumeKind, "", volume, "{spec: {persistentVolumeReclaimPolicy: Retain}, status: {phase: Released}}")
		}
		// A claim of another volume, which is deleted, is the proof that its turn has come.
		s.apply(t, strings.ReplaceAll(claim, "NAME", "later"))
		s.mount(t, "later", "Exists")
		s.kubectl(t, "delete", "pod", "later", timeout)
		s.kubectl(t, "delete", claimKindName, "later", timeout)
		wantGone(t, milan, claimKind, s.remote, "later")
		if copies := s.copies(t); len(copies) != 2 {
			t.Errorf("the kept data is in %v", copies)
		}
		for _, volume := range volumes {
			rome.Kubectl(t, "delete", "persistentvolume", volume)
		}
		rome.Kubectl(t, "delete", claimKindName, "-n", storageNamespace, "-l", ofNamespace+s.name)
		s.remoteKubectl(t, "delete", claimKindName, "there", timeout)
	})
}

// ofNamespace and a namespace select its real claims.
const ofNamespace = "storage.liqo.io/virtual-pvc-namespace="

// copies are the claims of both clusters that hold data of the namespace.
func (s namespace) copies(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range strings.Fields(rome.Kubectl(
		t, "get", claimKindName, "-n", storageNamespace, "-l", ofNamespace+s.name, "-o", "jsonpath={.items[*].metadata.name}",
	)) {
		all = append(all, rome.Name+" "+name)
	}
	for _, name := range strings.Fields(s.remoteKubectl(t, "get", claimKindName, "-o", "jsonpath={.items[*].metadata.name}")) {
		all = append(all, milan.Name+" "+name)
	}
	return all
}
