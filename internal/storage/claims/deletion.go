// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/storage/data"
)

// records returns all volumes of this provider that record some data, as our cache shows them.
func (k *Keeper) records(name string) (found []*corev1.PersistentVolume) {
	for _, one := range k.volumes.All(fanin.Every) {
		if volume, is := one.(*corev1.PersistentVolume); is && data.Name(volume) == name {
			found = append(found, volume)
		}
	}
	return found
}

// kept reports whether a remote claim holds data of another volume than this one, and will not be deleted to free the name: no earlier claim of the
// same name with the policy Delete records the data.
func (k *Keeper) kept(remote *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	name := volumeOf(remote)
	if name == "" || name == data.Name(volume) || !k.volumes.Current(fanin.Every) {
		return false
	}
	for _, other := range k.records(name) {
		owner, wanted := other.Spec.ClaimRef, volume.Spec.ClaimRef
		if other.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
			owner != nil && owner.Namespace == wanted.Namespace && owner.Name == wanted.Name {
			return false
		}
	}
	return true
}

// shared reports whether another volume keeps the data of a volume.
func (k *Keeper) shared(volume *corev1.PersistentVolume) bool {
	for _, other := range k.records(data.Name(volume)) {
		if data.Shared(volume, other) {
			return true
		}
	}
	return false
}

// readRecorded reads the remote claim where the volume records it: the caches hold claims of offloaded namespaces only.
func (k *Keeper) readRecorded(ctx context.Context, f Facts) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, recordedTimeout)
	defer cancel()
	c, err := k.options.Peer.Client(ctx)
	if err != nil {
		return f, err
	}
	var found corev1.PersistentVolumeClaimList
	namespace, name := f.Volume.Annotations[labels.RemoteNamespace], data.RemoteClaim(f.Volume)
	if err := c.List(ctx, &found, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name}); err != nil {
		return f, fmt.Errorf("look for claim %s/%s: %w", namespace, name, err)
	}
	f.Recorded, f.Remote = true, nil
	if len(found.Items) > 0 {
		f.Remote = &found.Items[0]
	}
	return f, nil
}

// deleteRemote deletes data. It reads all records of the data again: the administrator may have kept one, or given it to another claim, which our
// cache does not show yet.
func (k *Keeper) deleteRemote(ctx context.Context, f Facts, uid types.UID) error {
	now := &corev1.PersistentVolume{}
	switch err := k.options.Local.Get(ctx, client.ObjectKeyFromObject(f.Volume), now); {
	case err != nil:
		return fmt.Errorf("read volume %s: %w", f.Volume.Name, err)
	case now.UID != f.Volume.UID || now.ResourceVersion != f.Volume.ResourceVersion:
		return fmt.Errorf("volume %s has changed", f.Volume.Name)
	}
	for _, other := range k.records(data.Name(f.Volume)) {
		if other.Name == f.Volume.Name {
			continue
		}
		now := &corev1.PersistentVolume{}
		switch err := k.options.Local.Get(ctx, client.ObjectKeyFromObject(other), now); {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("read volume %s, which records the same data as %s: %w", other.Name, f.Volume.Name, err)
		case err == nil && data.Shared(f.Volume, now):
			return fmt.Errorf("volume %s keeps the data of volume %s", other.Name, f.Volume.Name)
		}
	}
	c, err := k.options.Peer.Client(ctx)
	if err != nil {
		return err
	}
	log.FromContext(ctx).Info("deleting the data of a deleted claim", "volume", f.Volume.Name, "remoteNamespace", f.Remote.Namespace, "claim", f.Remote.Name)
	err = c.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: f.Remote.ObjectMeta}, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete claim %s/%s at the provider: %w", f.Remote.Namespace, f.Remote.Name, err)
	}
	return nil
}
