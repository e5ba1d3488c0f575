// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest/hardening"
)

// TestHardening: the pods of a move have the capabilities that files of any owner take, and no token.
func TestHardening(t *testing.T) {
	accepted := map[string]string{
		"mover: may run as root": "files have any owner, and only root gets capabilities", "mover: writable root": "the programs write users, configuration and results",
		"mover: no request of memory": "the user gives both in the VolumeMove, as only he knows how many files there are", "mover: no limit of memory": "as above",
	}
	for _, capability := range []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"} {
		accepted["mover: adds "+capability] = "writes files as their owners have them"
	}
	for _, capability := range []string{"SETGID", "SETUID", "SYS_CHROOT"} {
		accepted["mover: adds "+capability] = "sshd and rsync give their rights away before they read what the other side sends"
	}
	f := &Facts{Move: &v1alpha1.VolumeMove{}}
	for name, object := range map[string]Object{"measure": f.reader(modeMeasure), "copy": f.reader(modeCopy), "finish": f.reader(modeFinish), "serve": f.server()} {
		pod, is := object.(*corev1.Pod)
		if !is {
			t.Fatalf("%s is no pod", name)
		}
		hardening.Check(t, name, hardening.Ends, &pod.Spec, accepted)
	}
}
