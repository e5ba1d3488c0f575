// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bytes"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// volumesDirectory has the volumes of a node of the playground.
const volumesDirectory = "/var/local-path"

const oneQuota = `{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, spec: {hard: {persistentvolumeclaims: "HARD"}}}`

// TestMoveLimits: a quota of either cluster and a full disk refuse a move in one sentence, and nothing has changed. A kept source stays beside the moved data.
func TestMoveLimits(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it moves a volume four times; use -long")
	}
	installedAndPeered(t)
	s := offload(t)
	s.apply(t, strings.ReplaceAll(claim, "NAME", "data"))
	s.mount(t, "data", "DoesNotExist")
	s.kubectl(t, "exec", "data", "--", "sh", "-c", files)
	before := s.kubectl(t, "exec", "data", "--", "sh", "-c", content)
	at := s.kubectl(t, "get", "pod", "data", "-o", "jsonpath={.spec.nodeName}")
	s.kubectl(t, "delete", "pod", "data", timeout)
	unchanged := func(t *testing.T, result execution.Result, words ...string) {
		t.Helper()
		for _, word := range append(words, "was not moved, and is as before") {
			if result.Code == 0 || !strings.Contains(result.Err, word) {
				t.Errorf("want %q, have %s", word, result)
			}
		}
		if text := strings.TrimSpace(result.Err); text != last(text) {
			t.Errorf("it is more than one sentence: %s", text)
		}
		t.Log(last(result.Err))
		s.nothingLeft(t)
		s.mount(t, "data", "")
		if now := s.kubectl(t, "get", "pod", "data", "-o", "jsonpath={.spec.nodeName}"); now != at {
			t.Errorf("the data is at %s", now)
		}
		if now := s.kubectl(t, "exec", "data", "--", "sh", "-c", content); now != before {
			t.Errorf("the volume has\n%s\nbefore:\n%s", now, before)
		}
		s.kubectl(t, "delete", "pod", "data", timeout)
	}
	t.Run("quota of the provider", func(t *testing.T) {
		if result := milan.TryKubectl(strings.ReplaceAll(oneQuota, "HARD", "0"), "-n", s.remote, "apply", "-f", "-"); result.Code != 0 {
			t.Fatal(result)
		}
		unchanged(t, s.move("data", "--target-node", virtualNode), virtualNode+" refuses the claim for the data", "exceeded quota: few")
		s.remoteKubectl(t, "delete", "resourcequota", "few")
	})
	t.Run("quota of this cluster", func(t *testing.T) {
		s.apply(t, strings.ReplaceAll(oneQuota, "HARD", "2"))
		s.wantLocal(t, "v1/ResourceQuota", "few", "{status: {used: {persistentvolumeclaims: '1'}}}")
		unchanged(t, s.move("data", "--target-node", virtualNode), "exceeded quota: few")
		s.kubectl(t, "delete", "resourcequota", "few")
	})
	t.Run("no space", func(t *testing.T) {
		unchanged(t, s.moveToFull(t), "does not fit into the volume in "+virtualNode, "No space left on device")
	})
	t.Run("kept source", func(t *testing.T) {
		result := s.move("data", "--target-node", virtualNode, "--keep-source")
		_, old, is := strings.Cut(result.Out, "the old copy in this cluster is volume ")
		if result.Code != 0 || !is {
			t.Fatal(result)
		}
		old = strings.FieldsFunc(old, func(r rune) bool { return strings.ContainsRune("; \n", r) })[0]
		wantObject(t, rome, volumeKind, "", old, "{spec: {persistentVolumeReclaimPolicy: Retain}, status: {phase: Released}}")
		s.mount(t, "data", "")
		if now := s.kubectl(t, "exec", "data", "--", "sh", "-c", content); now != before {
			t.Errorf("the volume has\n%s\nbefore:\n%s", now, before)
		}
		if now := s.kubectl(t, "get", "pod", "data", "-o", "jsonpath={.spec.nodeName}"); now != virtualNode {
			t.Errorf("the data is at %s", now)
		}
		kept := []string{"-n", storageNamespace, "-l", "storage.liqo.io/virtual-pvc-namespace=" + s.name}
		if all := strings.Fields(rome.Kubectl(t, append([]string{"get", claimKindName, "-o", "name"}, kept...)...)); len(all) != 1 {
			t.Errorf("the old data is in %v, want one claim", all)
		}
		rome.Kubectl(t, "delete", "persistentvolume", old)
		rome.Kubectl(t, append([]string{"delete", claimKindName}, kept...)...)
		s.kubectl(t, "delete", "pod", "data", timeout)
		s.kubectl(t, "delete", claimKindName, "data", timeout)
	})
}

// moveToFull moves the volume to a disk with little space: it covers the directory of volumes of each node of milan with a small file system, and makes the
// directory of the new volume there, because the provisioner makes it on the disk.
func (s namespace) moveToFull(t *testing.T) execution.Result {
	t.Helper()
	for _, node := range milan.Nodes {
		clusters.Do(t, "exec", milan.Name, node.Name, "--", "mkdir", "-p", volumesDirectory)
		clusters.Do(t, "exec", milan.Name, node.Name, "--", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", volumesDirectory)
		defer clusters.Do(t, "exec", milan.Name, node.Name, "--", "umount", "-l", volumesDirectory)
	}
	command := rome.LiqoctlCommand(t.Context(), "move", "volume", "data", "-n", s.name, "--target-node", virtualNode)
	var out, text bytes.Buffer
	command.Stdout, command.Stderr = &out, &text
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	volume := ""
	env.Eventually(t, env.Hang, "the provider makes the volume", func() (string, bool) {
		volume = s.remoteKubectl(t, "get", claimKindName, "-o", "jsonpath={.items[*].spec.volumeName}")
		return volume, volume != ""
	})
	directory := milan.Kubectl(t, "get", "persistentvolume", volume, "-o", "jsonpath={.spec.hostPath.path}")
	for _, node := range milan.Nodes {
		clusters.Do(t, "exec", milan.Name, node.Name, "--", "mkdir", "-m", "777", directory)
	}
	_ = command.Wait() // its text is compared
	return execution.Result{Args: "move to a full disk", Code: command.ProcessState.ExitCode(), Out: out.String(), Err: text.String()}
}
