// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/storage/data"
)

// Held returns why a new pod cannot run at the provider yet: one of its claims has no data there, or data that is not its own. Nil: it can. It reads
// volumes from the API server: by a cache that is late, a pod would start on data that a move has taken away, and its writes would be lost with the
// old copy.
func (k *Keeper) Held(ctx context.Context, pod *corev1.Pod) error {
	for _, name := range data.ClaimsOf(pod) {
		claim, current := claimIn(k.local, pod.Namespace, name)
		switch {
		case claim == nil && !current:
			return fmt.Errorf("claim %s: %w", name, errUnknown)
		case claim == nil:
			continue // storage that others manage, and that the provider may have
		}
		found, current := k.volumes.Look(types.NamespacedName{Name: data.VolumeOf(claim)})
		volume, _ := found.(*corev1.PersistentVolume)
		switch {
		case volume == nil && !current:
			return fmt.Errorf("claim %s: %w", name, errUnknown)
		case volume == nil && claim.Annotations[data.Assigned] == data.Provisioner:
			return fmt.Errorf("claim %s: its volume is missing; it may be moving", name)
		case volume == nil:
			continue // of another class
		}
		if step := Plan(k.facts(volume)); step.Hold != "" {
			return fmt.Errorf("claim %s: %s", name, step.Hold)
		}
		now := &corev1.PersistentVolume{}
		switch err := k.options.Local.Get(ctx, client.ObjectKeyFromObject(volume), now); {
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("claim %s: read its volume: %w", name, err)
		case err != nil || now.UID != volume.UID || now.DeletionTimestamp != nil:
			return fmt.Errorf("claim %s: its volume was taken away or replaced; it may be moving", name)
		}
	}
	return nil
}

// RemoteName returns the name of the claim at the provider that has the data of a claim; false if there is none.
func (k *Keeper) RemoteName(namespace, name string) (remote string, is bool) {
	claim, _ := claimIn(k.local, namespace, name)
	if claim == nil {
		return "", false
	}
	volume := k.volume(data.VolumeOf(claim))
	if volume == nil || volume.Spec.ClaimRef == nil {
		return "", false
	}
	return data.RemoteClaim(volume), true
}

var errUnknown = errors.New("it is not known yet")
