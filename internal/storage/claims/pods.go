// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/storage/data"
)

// Held returns why a pod cannot run at the provider yet: one of its claims has no data there, or data that is not its own. Nil: it can.
func (k *Keeper) Held(pod *corev1.Pod) error {
	for _, name := range data.ClaimsOf(pod) {
		claim := k.claim(types.NamespacedName{Namespace: pod.Namespace, Name: name})
		switch {
		case claim == nil && !k.local.Current(pod.Namespace):
			return fmt.Errorf("claim %s: %w", name, errUnknown)
		case claim == nil:
			continue // storage that others manage, and that the provider may have
		}
		volume := k.volume(data.VolumeOf(claim))
		switch {
		case volume == nil && !k.volumes.Current(fanin.Every):
			return fmt.Errorf("claim %s: %w", name, errUnknown)
		case volume == nil && claim.Annotations[data.Assigned] == data.Provisioner:
			return fmt.Errorf("claim %s: its volume is missing; it may be moving", name)
		case volume == nil:
			continue // of another class
		}
		if step := Plan(k.facts(volume)); step.Hold != "" {
			return fmt.Errorf("claim %s: %s", name, step.Hold)
		}
	}
	return nil
}

// RemoteName returns the name of the claim at the provider that has the data of a claim; false if there is none.
func (k *Keeper) RemoteName(namespace, name string) (remote string, is bool) {
	claim := k.claim(types.NamespacedName{Namespace: namespace, Name: name})
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
