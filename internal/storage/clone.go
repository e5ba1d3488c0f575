// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/data"
)

// +kubebuilder:rbac:groups=storage.k8s.io,resources=csidrivers,verbs=list;watch

// source returns the volume with the data that a claim is to start with, in the cluster of clusterID or in this one; nil if the claim starts empty.
func (p *provisioner) source(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, clusterID string,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	name, reason := sourceOf(claim)
	switch {
	case reason != "":
		return nil, controller.ProvisioningFinished, p.refuse(claim, reason)
	case name == "":
		return nil, controller.ProvisioningFinished, nil
	}
	var source *corev1.PersistentVolumeClaim
	var volume *corev1.PersistentVolume
	found, err := p.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, name, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		return nil, controller.ProvisioningNoChange, fmt.Errorf("read claim %s: %w", name, err)
	}
	if err == nil {
		source = found
		at, err := p.kube.CoreV1().PersistentVolumes().Get(ctx, source.Spec.VolumeName, metav1.GetOptions{})
		switch {
		case source.Spec.VolumeName == "" || apierrors.IsNotFound(err):
		case err != nil:
			return nil, controller.ProvisioningNoChange, fmt.Errorf("read the volume of claim %s: %w", name, err)
		default:
			volume = at
		}
	}
	switch verdict, reason := judge(claim, source, volume, name, clusterID); verdict {
	case never:
		return nil, controller.ProvisioningFinished, p.refuse(claim, reason)
	case later:
		return nil, controller.ProvisioningNoChange, errors.New(reason)
	case elsewhere:
		return nil, controller.ProvisioningReschedule, errors.New(reason)
	}
	return volume, controller.ProvisioningFinished, nil
}

// realSource returns the real claim with the data of a volume of this cluster. reason is why its class cannot copy it.
func (p *provisioner) realSource(
	ctx context.Context, volume *corev1.PersistentVolume, class string,
) (real *corev1.PersistentVolumeClaim, reason string, err error) {
	all, err := p.kube.CoreV1().PersistentVolumeClaims(p.options.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: labels.VirtualVolume + "=" + data.Name(volume)})
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("find the real claim of volume %s: %w", volume.Name, err)
	case len(all.Items) != 1:
		return nil, "", fmt.Errorf("%d claims in namespace %s have the data of volume %s, want one", len(all.Items), p.options.Namespace, volume.Name)
	}
	real = &all.Items[0]
	if class == "" && real.Spec.StorageClassName != nil {
		class = *real.Spec.StorageClassName
	}
	var of storagev1.StorageClass
	if err := p.cached.Get(ctx, client.ObjectKey{Name: class}, &of); err != nil {
		return nil, "", fmt.Errorf("read storage class %q: %w", class, err)
	}
	switch err := p.cached.Get(ctx, client.ObjectKey{Name: of.Provisioner}, &storagev1.CSIDriver{}); {
	case apierrors.IsNotFound(err):
		return nil, cannotCopy(class), nil
	case err != nil:
		return nil, "", fmt.Errorf("read storage driver %s: %w", of.Provisioner, err)
	}
	return real, "", nil
}

// cannotCopy is why a class makes no copies: a provisioner without such a driver does not know sources, and would make an empty volume.
func cannotCopy(class string) string {
	return fmt.Sprintf(
		"spec.dataSource: storage class %s cannot copy volumes, because its provisioner is no driver of the Container Storage Interface; restore the data from a pod",
		class,
	)
}
