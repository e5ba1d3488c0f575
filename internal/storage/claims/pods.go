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

// storageProvisioner is the annotation with which Kubernetes assigns a claim to a provisioner, provisionerName is ours.
const (
	storageProvisioner = "volume.kubernetes.io/storage-provisioner"
	provisionerName    = "liqo.io/storage"
)

// Held returns why a pod cannot run at the provider yet: one of its claims has no data there, or data that is not its own. Nil: it can.
func (k *Keeper) Held(pod *corev1.Pod) error {
	for _, name := range claimsOf(pod) {
		claim := k.claim(types.NamespacedName{Namespace: pod.Namespace, Name: name})
		switch {
		case claim == nil && !k.local.Current(pod.Namespace):
			return fmt.Errorf("claim %s: %w", name, errUnknown)
		case claim == nil:
			continue // storage that others manage, and that the provider may have
		}
		volume := k.volume(volumeName(claim))
		switch {
		case volume == nil && !k.volumes.Current(fanin.Every):
			return fmt.Errorf("claim %s: %w", name, errUnknown)
		case volume == nil && claim.Annotations[storageProvisioner] == provisionerName:
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
	volume := k.volume(volumeName(claim))
	if volume == nil || volume.Spec.ClaimRef == nil {
		return "", false
	}
	return data.RemoteClaim(volume), true
}

var errUnknown = errors.New("it is not known yet")

// claimsOf returns the names of the claims of a pod, with those that Kubernetes makes for it.
func claimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}
