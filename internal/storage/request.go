// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// Parameters of a virtual storage class.
const (
	// realClassParameter is the storage class of this cluster that holds the data of claims whose first pod runs here; empty for the default class.
	realClassParameter = "realStorageClassName"
	// remoteClassParameter is the storage class that is asked of providers; empty for the one that they grant as the default.
	remoteClassParameter = "remoteStorageClassName"
)

// unsupported returns why no volume can be made for a claim; empty if one can.
func unsupported(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	switch {
	case claim.Spec.Selector != nil:
		return "spec.selector selects existing volumes; leave it out to get a new one"
	case claim.Spec.VolumeAttributesClassName != nil && *claim.Spec.VolumeAttributesClassName != "":
		return "spec.volumeAttributesClassName: the attributes belong to a driver, and a virtual storage class has none"
	}
	for parameter := range class.Parameters {
		if parameter != realClassParameter && parameter != remoteClassParameter {
			return fmt.Sprintf("storage class %s has the parameter %q; a virtual class knows %s and %s", class.Name, parameter, realClassParameter, remoteClassParameter)
		}
	}
	return ""
}

// remoteClass returns the storage class that a claim gets at a provider, out of those that it grants. reason is why there is none.
func remoteClass(class *storagev1.StorageClass, cluster string, granted []sharingv1alpha1.StorageClass) (got sharingv1alpha1.StorageClass, reason string) {
	if len(granted) == 0 {
		return got, fmt.Sprintf("cluster %s grants no storage class", cluster)
	}
	var names []string
	for _, one := range granted {
		names = append(names, one.StorageClassName)
	}
	asked := class.Parameters[remoteClassParameter]
	switch i := slices.Index(names, asked); {
	case asked != "" && i >= 0:
		return granted[i], ""
	case asked != "":
		return got, fmt.Sprintf(
			"cluster %s does not grant the storage class %q, which class %s asks for; it grants %s", cluster, asked, class.Name,
			strings.Join(names, ", "),
		)
	}
	for _, one := range granted {
		if one.Default {
			return one, ""
		}
	}
	return got, fmt.Sprintf("cluster %s grants the storage classes %s, and none as its default; name one in the parameter %s of class %s",
		cluster, strings.Join(names, ", "), remoteClassParameter, class.Name)
}
