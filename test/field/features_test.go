// SPDX-License-Identifier: Apache-2.0

package field

import (
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// TestFeatures: what a pod asks for is what its processes find, in both clusters. Package internal/offloading/features proves for every field that it
// arrives; here kernels and kubelets show some of them.
func TestFeatures(t *testing.T) {
	together(t)
	for _, name := range manifestsIn(t, "features") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, "features/"+name).prints(t)
		})
	}
	t.Run("lived", func(t *testing.T) {
		t.Parallel()
		lived(t)
	})
}

// lived: a gate keeps a pod from being Ready, a container is added to it, and it ends by its signal after its hook, which its message states.
func lived(t *testing.T) {
	s := play(t, "lived")
	t.Cleanup(func() {
		for _, double := range []string{"home", "remote"} {
			rome.TryKubectl("", "-n", s.name, "patch", "pod", double, "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
		}
	})
	messages := map[string]string{}
	for _, double := range []string{"home", "remote"} {
		s.kubectl(t, "wait", "pod/"+double, "--for=condition=ContainersReady", "--timeout=120s")
		if ready := s.kubectl(t, "get", "pod", double, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "False" {
			t.Errorf("pod %s is Ready %q before its gate is open", double, ready)
		}
		s.kubectl(t, "patch", "pod", double, "--subresource=status", "-p", `{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`)
		s.kubectl(t, "wait", "pod/"+double, "--for=condition=Ready", "--timeout=120s")

		s.kubectl(t, "debug", double, "--image="+env.ToolsImage, "--image-pull-policy=Never", "-c", "debugger", "--target=main", "--attach=false", "--",
			"sh", "-c", `tr '\0' ' ' < /proc/1/cmdline`)
		env.Eventually(t, env.Hang, "the ephemeral container of pod "+double+" shows the process of its target", func() (string, bool) {
			seen := rome.TryKubectl("", "-n", s.name, "logs", double, "-c", "debugger").String()
			return seen, strings.Contains(seen, "for signal in TERM USR1")
		})

		s.kubectl(t, "delete", "pod", double, "--wait=false")
		env.Eventually(t, env.Hang, "pod "+double+" states how it ended", func() (string, bool) {
			seen := rome.TryKubectl(
				"", "-n", s.name, "get", "pod", double, "-o",
				`jsonpath={.status.containerStatuses[0].state.terminated.exitCode} {.status.containerStatuses[0].state.terminated.message}`,
			).Out
			messages[double] = strings.TrimSpace(seen)
			return seen, strings.HasPrefix(seen, "3 ")
		})
	}
	// Which signal it is depends on the version of Kubernetes (stopSignal).
	if messages["home"] != messages["remote"] || !strings.HasPrefix(messages["remote"], "3 after the hook ") {
		t.Errorf("the pods ended with %q", messages)
	}
}
