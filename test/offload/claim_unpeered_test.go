// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"strings"
	"testing"
)

// TestDataAfterUnpeer: the end of a peering deletes no data, not even by force. The claim has its data again when the clusters have peered again.
func TestDataAfterUnpeer(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it ends the peering of the other tests, and peers again; use -long")
	}
	installedAndPeered(t)
	namespacesGone(t) // an unpeering by force would leave the data of those that are still being deleted
	s := offload(t)
	s.apply(t, strings.ReplaceAll(claim, "NAME", "data"))
	s.mount(t, "data", "Exists")
	s.write(t, "data", "before")
	s.kubectl(t, "delete", "pod", "data", timeout)
	volume, there := s.volumeOf(t, "data"), s.inMilan(t, claimKind, "data")
	if result := rome.TryLiqoctl("unpeer", "out-of-band", milan.Name); result.Code == 0 || !strings.Contains(result.Err, "data (25Mi)") {
		t.Fatalf("unpeer does not name the claim: %s", result)
	}
	if result := rome.TryLiqoctl("unpeer", "out-of-band", milan.Name, "--force"); result.Code != 0 || !strings.Contains(result.Out+result.Err, "data (25Mi)") {
		t.Fatalf("unpeer --force: %s", result)
	}
	wantObject(t, milan, namespaceKind, "", s.remote, "{metadata: {deletionTimestamp: null, annotations: {liqo.io/kept-for-data: no-peer}}}")
	if now := s.inMilan(t, claimKind, "data"); now == nil || now.GetUID() != there.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Fatalf("the claim of milan is %v", now)
	}
	if now := s.volumeOf(t, "data"); now != volume {
		t.Errorf("the claim has the volume %s, before %s", now, volume)
	}

	installedAndPeered(t)
	if rome.TryKubectl("", "-n", s.name, "get", "namespaceoffloadings", "offloading").Code != 0 {
		rome.Liqoctl(t, "offload", "namespace", s.name)
	}
	if now := remoteName(t, s.name); now != s.remote {
		t.Errorf("the remote namespace is %s, before %s", now, s.remote)
	}
	s.mount(t, "data", "")
	if text := s.read(t, "data"); text != "before" {
		t.Errorf("the pod reads %q", text)
	}
	s.kubectl(t, "delete", "pod", "data", timeout)
	s.kubectl(t, "delete", claimKindName, "data", timeout)
	wantGone(t, milan, claimKind, s.remote, "data")
	wantGone(t, rome, volumeKind, "", volume)
}
