// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env/execution"
)

// files makes files of every kind, and sums of all that a move must keep: content, owners, modes, times, links, extended attributes and holes.
const files = `set -e; cd /data; mkdir -p a/b "with space"; echo one >a/one; ln a/one a/same; ln -s ../a/one a/b/link; echo two >"with space/two"; chown 12:34 a/one; chmod 4750 a/b;
touch -d @1000000000 a/one; dd if=/dev/zero of=holes bs=1 count=1 seek=8000000 2>/dev/null; for i in $(seq 300); do echo $i >a/b/$i; done; sync`

// content is a listing by tools that know nothing of the mover. A copy may have more holes than the original.
const content = `cd /data; find . -name lost+found -prune -o -exec stat -c '%n %F %a %u %g %s %h %Y' {} + | sed '/ directory /s/ [0-9]* ` +
	`[0-9]* \([0-9]*\)$/ \1/' | sort; find . -type f | sort | xargs -d '\n' cat | cksum; readlink a/b/link; [ $(stat -c %b holes) -le 8 ] && echo holes`

func (s namespace) move(args ...string) execution.Result {
	return rome.TryLiqoctl(append([]string{"move", "volume", "-n", s.name}, args...)...)
}

// nothingLeft: a move that has ended leaves nothing but the volume of its claim.
func (s namespace) nothingLeft(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"pods", "secrets", "services", "networkpolicies", "rolebindings", "persistentvolumeclaims", "volumemoves.storage.liqo.io"} {
		if left := strings.TrimSpace(s.kubectl(t, "get", kind, "-o", "name")); strings.Contains(left, "liqo-move-") || strings.Contains(left, "volumemove") {
			t.Errorf("the move has left: %s", left)
		}
	}
	if left := rome.Kubectl(t, "get", "persistentvolumes", "-l", "storage.liqo.io/move", "-o", "name"); strings.TrimSpace(left) != "" {
		t.Errorf("the move has left: %s", left)
	}
}

// TestMoveVolume: data moves to a provider and back under the same claim, with everything that belongs to its files; what cannot work is refused and
// changes nothing.
func TestMoveVolume(t *testing.T) {
	together(t)
	s := offload(t)
	s.apply(t, strings.ReplaceAll(claim, "NAME", "data"))
	s.mount(t, "data", "DoesNotExist")
	s.kubectl(t, "exec", "data", "--", "sh", "-c", files)
	before := s.kubectl(t, "exec", "data", "--", "sh", "-c", content)
	volume := s.volumeOf(t, "data")

	node := strings.TrimSpace(s.kubectl(t, "get", "pod", "data", "-o", "jsonpath={.spec.nodeName}"))
	for _, row := range []struct {
		text string
		args []string
	}{
		{"pods use the claim: data", []string{"data", "--target-node", virtualNode}},
		{"there already", []string{"data", "--target-node", node}},
		{"there is no node", []string{"data", "--target-node", "nowhere"}},
		{"has no claim", []string{"missing", "--target-node", virtualNode}},
		{"has no controller", []string{"data", "--target-node", virtualNode, "--online"}},
		{"does not move", []string{"data", "--cancel"}},
		{"--target-node must name", []string{"data"}},
	} {
		if result := s.move(row.args...); result.Code == 0 || !strings.Contains(result.Err, row.text) {
			t.Errorf("%v: want %q, have %s", row.args, row.text, result)
		}
	}
	if result := s.move("data", "--target-node", virtualNode, "--dry-run"); result.Code != 0 || !strings.Contains(result.Out, "nothing was changed") {
		t.Errorf("dry run: %s", result)
	}
	s.nothingLeft(t)

	for _, to := range []string{virtualNode, node} {
		s.kubectl(t, "delete", "pod", "data", timeout)
		if result := s.move("data", "--target-node", to); result.Code != 0 || !strings.Contains(result.Out, "verified") {
			t.Fatalf("move to %s: %s", to, result)
		}
		s.nothingLeft(t)
		s.mount(t, "data", "")
		if at := strings.TrimSpace(s.kubectl(t, "get", "pod", "data", "-o", "jsonpath={.spec.nodeName}")); at != to {
			t.Errorf("after the move to %s, the pod runs on %s", to, at)
		}
		if after := s.kubectl(t, "exec", "data", "--", "sh", "-c", content); after != before {
			t.Errorf("after the move to %s the volume has\n%s\nbefore:\n%s", to, after, before)
		}
		if now := s.volumeOf(t, "data"); now != volume {
			t.Errorf("the claim has volume %s, before the move %s", now, volume)
		}
	}
	if left := s.inMilan(t, claimKind, "data"); left != nil {
		t.Errorf("milan still has the data: %v", left.Object)
	}
	s.kubectl(t, "delete", "pod", "data", timeout)
	s.kubectl(t, "delete", "persistentvolumeclaim", "data", timeout)
	wantGone(t, rome, volumeKind, "", volume)
	if left := rome.Kubectl(
		t, "get", claimKindName, "-n", storageNamespace, "-l", "storage.liqo.io/virtual-pvc-namespace="+s.name, "-o", "name",
	); strings.TrimSpace(left) != "" {
		t.Errorf("the deletion of the claim has left %s", fmt.Sprint(left))
	}
}

const claimKindName = "persistentvolumeclaims"
