// SPDX-License-Identifier: Apache-2.0

package home

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/storageclass"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=list;watch

// mostReads bounds how many claims of one pod are read from the API server. More than a node can mount, and few enough for a forged question.
const mostReads = 16

// Reader reads the claims of pods.
type Reader struct {
	// Cached has claims and storage classes. Live reads claims that the cache does not have: a controller makes the claims of a pod right before the pod.
	Cached, Live client.Reader
}

// Keeps returns why the claims of a new pod keep it in this cluster, one reason for each claim that does. A claim that does not exist keeps no pod.
func (r Reader) Keeps(ctx context.Context, namespace string, pod *corev1.PodSpec) (reasons []string, err error) {
	reads := 0
	for i := range pod.Volumes {
		volume, claim := &pod.Volumes[i], &corev1.PersistentVolumeClaim{}
		switch {
		case volume.PersistentVolumeClaim != nil:
			claim.Name = volume.PersistentVolumeClaim.ClaimName
			err := r.Cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim.Name}, claim)
			if apierrors.IsNotFound(err) && reads < mostReads {
				reads++
				err = r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim.Name}, claim)
			}
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read claim %s/%s: %w", namespace, volume.PersistentVolumeClaim.ClaimName, err)
			}
		case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
			claim.Name, claim.Annotations, claim.Spec = volume.Name, volume.Ephemeral.VolumeClaimTemplate.Annotations, volume.Ephemeral.VolumeClaimTemplate.Spec
		default:
			continue
		}
		reason, err := r.Keeping(ctx, claim.Name, claim)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return reasons, nil
}

// Keeping returns why a claim keeps its pods in this cluster; nothing if it does not.
func (r Reader) Keeping(ctx context.Context, name string, claim *corev1.PersistentVolumeClaim) (reason string, err error) {
	facts := Facts{Name: name, Claim: claim}
	if facts.Class, err = r.class(ctx, claim); err != nil {
		return "", err
	}
	if reason := keeps(facts); reason == "" || claim.Spec.VolumeName == "" {
		return reason, nil
	}
	var volume corev1.PersistentVolume
	switch err := r.Cached.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume); {
	case err == nil:
		facts.Volume = &volume
	case !apierrors.IsNotFound(err):
		return "", fmt.Errorf("read volume %s: %w", claim.Spec.VolumeName, err)
	}
	return keeps(facts), nil
}

// class returns the class of a claim; nil if it has none, or one that does not exist.
func (r Reader) class(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	name, chosen := storageclass.Of(claim)
	if !chosen {
		var all storagev1.StorageClassList
		if err := r.Cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list storage classes: %w", err)
		}
		return storageclass.Default(all.Items), nil
	}
	if name == "" {
		return nil, nil
	}
	var class storagev1.StorageClass
	if err := r.Cached.Get(ctx, client.ObjectKey{Name: name}, &class); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &class, nil
}
