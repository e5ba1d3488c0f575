// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/deployments/liqo/charttest"
)

// claimOf returns the fields of a claim as the virtual kubelet applies it, with others instead.
func claimOf(more map[string]any) map[string]any {
	spec := map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "disk", "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	}
	for key, value := range more {
		spec[key] = value
		if value == nil {
			delete(spec, key)
		}
	}
	return map[string]any{"spec": spec}
}

// TestAttackM6: with claims, a peer gets new, empty volumes of the classes that the provider shares, and nothing else.
func TestAttackM6(t *testing.T) {
	ctx, admin, root := installed(t)
	const remote, policy = "web-rome-000000", "ValidatingAdmissionPolicy 'liqo-peers-claims'"
	c := asPeer(ctx, t, admin, root, remote)
	inForce(t, "liqo-peers-claims", func() error {
		return c.Create(ctx, peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(map[string]any{"volumeName": "x"})), client.DryRunAll)
	})
	inForce(t, "liqo-peers-objects", func() error { // it restricts the annotations
		return c.Create(ctx, peerObject(remote, "PersistentVolumeClaim", nil, keys{"volume.kubernetes.io/selected-node": "x"}, claimOf(nil)), client.DryRunAll)
	})
	claim := func(what string, more map[string]any, refused string) attempt {
		return attempt{what, "PersistentVolumeClaim", nil, nil, claimOf(more), refused}
	}
	source := map[string]any{"kind": "PersistentVolumeClaim", "name": "x"}
	snapshot := map[string]any{"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "x"}
	note := func(what string, notes keys, refused string) attempt {
		return attempt{what, "PersistentVolumeClaim", nil, notes, claimOf(nil), refused}
	}
	for _, test := range []attempt{
		claim("an ordinary claim", nil, ""),
		note("the claim of a virtual kubelet", keys{"storage.liqo.io/virtual-volume": "x"}, ""),
		claim("a block volume for many", map[string]any{"volumeMode": "Block", "accessModes": []any{"ReadWriteMany"}}, ""),
		claim("the volume of others", map[string]any{"volumeName": "backup"}, policy),
		claim("volumes of others", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "backup"}}}, policy),
		claim("a copy of a claim that its pods may use", map[string]any{"dataSource": source}, ""),
		claim("the same as a reference", map[string]any{"dataSourceRef": source}, ""),
		claim("the data of a snapshot", map[string]any{"dataSource": snapshot}, policy),
		claim("the data of anything", map[string]any{"dataSourceRef": map[string]any{"kind": "PersistentVolumeClaim", "apiGroup": "evil.example.com", "name": "x"}}, policy),
		claim("the settings of a driver", map[string]any{"volumeAttributesClassName": "fast"}, policy),
		claim("any volume without a class", map[string]any{"storageClassName": ""}, policy),
		claim("no class", map[string]any{"storageClassName": nil}, policy),
		claim("our virtual class", map[string]any{"storageClassName": "liqo"}, `must not have the storage class "liqo"`),
		note("a class by the old annotation", keys{"volume.beta.kubernetes.io/storage-class": "other"}, "peers.metadata.persistentVolumeClaims"),
		note("a node", keys{"volume.kubernetes.io/selected-node": "x"}, "peers.metadata.persistentVolumeClaims"),
	} {
		test.check(ctx, t, c, remote)
	}
	held := peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil))
	held.SetFinalizers([]string{"example.com/held"})
	if err := c.Create(ctx, held, client.DryRunAll); err == nil || !strings.Contains(err.Error(), policy) {
		t.Errorf("a claim with a finalizer: %v", err)
	}

	// What Kubernetes adds to a claim does not stop the peer from changing it.
	bound := peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil))
	bound.SetName("bound")
	if err := c.Create(ctx, bound); err != nil {
		t.Fatal(err)
	}
	patch := func(by client.Client, text string, options ...client.PatchOption) error {
		return by.Patch(ctx, bound.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	if err := patch(root, `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"disk-1"}}`); err != nil {
		t.Fatal(err)
	}
	for text, refused := range map[string]string{
		`{"metadata":{"labels":{"app":"x"}}}`:                                      "",
		`{"metadata":{"finalizers":["example.com/held"]}}`:                         policy,
		`{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"again"}}}`: "peers.metadata.persistentVolumeClaims",
	} {
		if err := patch(c, text, client.DryRunAll); refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: %v, want a refusal with %q", text, err, refused)
		}
	}

	for _, object := range charttest.Render(t, "peers.storageClasses={gold}", "storage.virtualStorageClasses.fast.remoteStorageClassName=gold") {
		if strings.HasPrefix(object.GetName(), "liqo-peers-claims") {
			if err := root.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership); err != nil {
				t.Fatal(err)
			}
		}
	}
	inForce(t, "liqo-peers-claims", func() error {
		return c.Create(ctx, peerObject(remote, "PersistentVolumeClaim", nil, nil, claimOf(nil)), client.DryRunAll)
	})
	for _, test := range []attempt{
		claim("a class that is shared", map[string]any{"storageClassName": "gold"}, ""),
		claim("a class that is not", nil, `must not have the storage class "disk"; the administrator of this cluster can add it to the value peers.storageClasses`),
		claim("another virtual class", map[string]any{"storageClassName": "fast"}, policy),
	} {
		test.check(ctx, t, c, remote)
	}
}
