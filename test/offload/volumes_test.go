// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env/fields"
)

const (
	claimKind  = "v1/PersistentVolumeClaim"
	volumeKind = "v1/PersistentVolume"
	// storageNamespace has the real claims of rome.
	storageNamespace = "liqo-storage"
)

// claim is all that a user writes.
const claim = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: NAME, labels: {app: db}}, spec: {storageClassName: liqo, ` +
	`accessModes: [ReadWriteOnce], resources: {requests: {storage: 25Mi}}}}`

// mounting is a pod that uses the claim of its name. WHERE is an operator: Exists for virtual nodes, DoesNotExist for the others.
const mounting = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  AFFINITY
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sleep, infinity], volumeMounts: [{name: data, mountPath: /data}]}]
`

// mount applies a pod; where is empty for any node.
func (s namespace) mount(t *testing.T, name, where string) {
	t.Helper()
	affinity := ""
	if where != "" {
		affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: " +
			"liqo.io/type, operator: " + where + "}]}]}}}"
	}
	s.apply(t, strings.NewReplacer("NAME", name, "AFFINITY", affinity).Replace(mounting))
	s.running(t, name)
}

// write and read use the volume of a pod.
func (s namespace) write(t *testing.T, pod, text string) {
	t.Helper()
	s.kubectl(t, "exec", pod, "--", "sh", "-c", "echo "+text+" >/data/file && sync")
}

func (s namespace) read(t *testing.T, pod string) string {
	t.Helper()
	return strings.TrimSpace(s.kubectl(t, "exec", pod, "--", "cat", "/data/file"))
}

// volumeOf returns the name of the volume of a claim in rome.
func (s namespace) volumeOf(t *testing.T, name string) string {
	t.Helper()
	found := s.wantLocal(t, claimKind, name, "{status: {phase: Bound}}")
	return fmt.Sprint(fields.At(found.Object, "spec.volumeName"))
}

// cordoned: a pod waits for the node that has its data.
func (s namespace) cordoned(t *testing.T) {
	t.Helper()
	s.kubectl(t, "delete", "pod", "there", timeout)
	rome.Kubectl(t, "cordon", virtualNode)
	uncordon := func() { rome.Kubectl(t, "uncordon", virtualNode) }
	t.Cleanup(uncordon)
	s.apply(t, strings.NewReplacer("NAME", "there", "AFFINITY", "").Replace(mounting))
	s.wantLocal(t, podKind, "there", "{status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False'}]}}")
	uncordon()
	s.running(t, "there")
	if text := s.read(t, "there"); text != "first-there" {
		t.Errorf("after the node was cordoned, the pod reads %q", text)
	}
}

// TestVolumes tests claims on both sides; the namespaces of its parts are their own.
func TestVolumes(t *testing.T) {
	installedAndPeered(t)
	for name, part := range map[string]func(*testing.T){"of ours": ownVolumes, "of others": volumesOfOthers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t)
		})
	}
}

// ownVolumes: a claim of the class liqo gets its volume in the cluster of its first pod, later pods follow the data, and only the user's deletion of the
// claim deletes it.
func ownVolumes(t *testing.T) {
	wantObject(t, rome, "v1/Node", "", virtualNode, "{metadata: {labels: {storage.liqo.io/available: 'true'}}}")
	s := offload(t)
	for name, where := range map[string]string{"here": "DoesNotExist", "there": "Exists"} {
		s.apply(t, strings.ReplaceAll(claim, "NAME", name))
		s.mount(t, name, where)
		s.write(t, name, "first-"+name)
	}
	there := s.wantRemote(
		t, claimKind, "there",
		"{metadata: {labels: {app: db}}, spec: {storageClassName: standard, resources: {requests: {storage: 25Mi}}}, status: {phase: Bound}}",
	)
	remoteVolume := fmt.Sprint(fields.At(there.Object, "spec.volumeName"))
	wantObject(t, rome, volumeKind, "", s.volumeOf(t, "there"), "{metadata: {annotations: {storage.liqo.io/remote-volume: "+remoteVolume+"}}}")
	if found := s.inMilan(t, claimKind, "here"); found != nil {
		t.Errorf("milan has a claim whose data is in rome: %v", found.Object)
	}

	// Pods that may run anywhere follow the data.
	for _, name := range []string{"here", "there"} {
		s.kubectl(t, "delete", "pod", name, timeout)
		s.mount(t, name, "")
		node := s.kubectl(t, "get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
		if text := s.read(t, name); text != "first-"+name || (node == virtualNode) != (name == "there") {
			t.Errorf("pod %s runs on %s and reads %q", name, node, text)
		}
	}
	if *long {
		s.cordoned(t)
	}
	// Commands that would give up the data name it and refuse.
	for _, args := range [][]string{
		{"unoffload", "namespace", s.name}, {"offload", "namespace", s.name, "-l", "liqo.io/remote-cluster-id=none"}, {"unpeer", "out-of-band", milan.Name},
	} {
		result := rome.TryLiqoctl(args...)
		if result.Code == 0 || !strings.Contains(result.Err, "there (25Mi)") || !strings.Contains(result.Err, "cluster "+milan.Name) ||
			strings.Contains(result.Err, " here (") || strings.Contains(result.Err, "/here (") {
			t.Errorf("%v does not name the claim whose data is in milan: %s", args, result)
		}
	}
	if result := rome.TryLiqoctl("unoffload", "namespace", s.name, "--force"); result.Code == 0 || !strings.Contains(result.Err, "pods use the claims: there") {
		t.Errorf("a claim in use was deleted: %s", result)
	}

	// The user deletes a claim, and so its data, in both clusters.
	realClaim := fmt.Sprint(s.local(t, claimKind, "here").GetUID())
	wantObject(t, rome, claimKind, storageNamespace, realClaim, "{status: {phase: Bound}}")
	volumes := map[string]string{}
	for _, name := range []string{"here", "there"} {
		volumes[name] = s.volumeOf(t, name)
		s.kubectl(t, "delete", "pod", name, timeout)
	}
	s.kubectl(t, "delete", "persistentvolumeclaim", "here", timeout)
	wantGone(t, rome, claimKind, storageNamespace, realClaim)
	wantGone(t, rome, volumeKind, "", volumes["here"])
	// With --force, unoffload deletes the claims that it names.
	if result := rome.TryLiqoctl("unoffload", "namespace", s.name, "--force"); result.Code != 0 || !strings.Contains(result.Out+result.Err, "there (25Mi)") {
		t.Errorf("unoffload --force: %s", result)
	}
	wantGone(t, rome, volumeKind, "", volumes["there"])
	wantGone(t, milan, volumeKind, "", remoteVolume)
	wantGone(t, milan, namespaceKind, "", s.remote)
}

// volumesOfOthers: a pod whose node is chosen by name uses a claim that only milan has, and such a claim is never rome's to delete.
func volumesOfOthers(t *testing.T) {
	s := offload(t)
	name := strings.NewReplacer("NAME", "theirs", "storageClassName: liqo", "storageClassName: standard").Replace(claim)
	if result := milan.TryKubectl(name, "-n", s.remote, "apply", "-f", "-"); result.Code != 0 {
		t.Fatal(result)
	}
	s.apply(t, strings.NewReplacer("NAME", "theirs", "AFFINITY", "nodeName: "+virtualNode).Replace(mounting))
	s.running(t, "theirs")
	s.write(t, "theirs", "theirs")
	s.apply(t, strings.NewReplacer("name: NAME", "name: missing", "claimName: NAME", "claimName: missing", "AFFINITY", "nodeName: "+virtualNode).Replace(mounting))
	s.wantEvent(t, "Pod", "missing", "Warning", "missing")
	// A claim of rome with the same name does not get that data.
	s.kubectl(t, "delete", "pod", "theirs", "missing", timeout)
	s.apply(t, strings.ReplaceAll(claim, "NAME", "theirs"))
	s.apply(t, strings.NewReplacer("NAME", "theirs", "AFFINITY", "nodeSelector: {liqo.io/type: virtual-node}").Replace(mounting))
	s.wantEvent(t, claimKind[len("v1/"):], "theirs", "DataNotAvailable", "was not made for this one")
	s.wantLocal(t, podKind, "theirs", "{status: {phase: Pending}}")
	s.kubectl(t, "delete", "pod", "theirs", timeout)
	s.kubectl(t, "delete", "persistentvolumeclaim", "theirs", timeout)
	s.wantRemote(t, claimKind, "theirs", "{metadata: {deletionTimestamp: null}, status: {phase: Bound}}")
	s.remoteKubectl(t, "delete", "persistentvolumeclaim", "theirs", timeout)
}
