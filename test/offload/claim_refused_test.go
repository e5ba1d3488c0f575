// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"

	"liqo.io/liqo/test/env/fields"
)

// storageClass is a further virtual class.
const storageClass = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: NAME}, provisioner: liqo.io/storage, ` +
	`volumeBindingMode: WaitForFirstConsumer, MORE}`

// TestClaimRefused: a claim that would not start with the data, or with the parameters, that its user asks for gets an event and no volume. The volumes of the
// playground are directories, whose provisioner makes no copies and whose mounts have no options: the copy itself is proven by TestProvisioner.
func TestClaimRefused(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it makes ten claims; use -long")
	}
	installedAndPeered(t)
	s := offload(t)
	options, parameters := s.name+"-options", s.name+"-parameters"
	for name, more := range map[string]string{options: "mountOptions: [noatime]", parameters: "parameters: {fsType: xfs}"} {
		if result := rome.TryKubectl(strings.NewReplacer("NAME", name, "MORE", more).Replace(storageClass), "apply", "-f", "-"); result.Code != 0 {
			t.Fatal(result)
		}
		t.Cleanup(func() { rome.Kubectl(t, "delete", "storageclass", name) })
	}
	for name, where := range map[string]string{"here": "DoesNotExist", "there": "Exists"} {
		s.apply(t, strings.ReplaceAll(claim, "NAME", name))
		s.mount(t, name, where)
	}
	const pvc = "dataSource: {kind: PersistentVolumeClaim, name: "
	for name, test := range map[string]struct{ where, class, source, want string }{
		"copy-here":     {"DoesNotExist", "liqo", pvc + "here}", "standard cannot copy volumes"},
		"copy-there":    {"Exists", "liqo", pvc + "there}", "standard of cluster " + virtualNode + " cannot copy volumes"},
		"here-of-there": {"DoesNotExist", "liqo", pvc + "there}", "in another cluster"},
		"there-of-here": {"Exists", "liqo", pvc + "here}", "in another cluster"},
		"snapshot-here": {"DoesNotExist", "liqo", "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: here}", "VolumeSnapshot"},
		"parameters":    {"DoesNotExist", parameters, "", `has the parameter "fsType"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.apply(t, strings.NewReplacer("NAME", name, "storageClassName: liqo,", "storageClassName: "+test.class+", "+strings.TrimPrefix(test.source+", ", ", ")).
				Replace(claim))
			affinity := "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: " +
				"liqo.io/type, operator: " + test.where + "}]}]}}}"
			s.apply(t, strings.NewReplacer("NAME", name, "AFFINITY", affinity).Replace(mounting))
			s.wantEvent(t, "PersistentVolumeClaim", name, "ProvisioningFailed", test.want)
			found := s.wantLocal(t, claimKind, name, "{status: {phase: Pending}}")
			if volume := fields.At(found.Object, "spec.volumeName"); volume != nil {
				t.Errorf("it has the volume %v", volume)
			}
			if found := s.inMilan(t, claimKind, name); found != nil {
				t.Errorf("the provider has a claim for it: %v", found.Object)
			}
		})
	}
	t.Run("mount options", func(t *testing.T) {
		t.Parallel()
		s.apply(t, strings.NewReplacer("NAME", "options-here", "storageClassName: liqo", "storageClassName: "+options).Replace(claim))
		s.apply(t, strings.NewReplacer("NAME", "options-here", "AFFINITY", "nodeSelector: {kubernetes.io/hostname: "+rome.Nodes[len(rome.Nodes)-1].Name+"}").
			Replace(mounting))
		wantObject(t, rome, volumeKind, "", s.volumeOf(t, "options-here"), "{spec: {mountOptions: [noatime]}}")
		// At the provider, the options are those of its class: the pod runs although directories have none.
		s.apply(t, strings.NewReplacer("NAME", "options-there", "storageClassName: liqo", "storageClassName: "+options).Replace(claim))
		s.mount(t, "options-there", "Exists")
	})
}
