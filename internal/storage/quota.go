// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/storageclass"
)

// +kubebuilder:rbac:groups="",resources=resourcequotas,verbs=list

// classResources are what a quota of one class may bound.
var classResources = []corev1.ResourceName{corev1.ResourceRequestsStorage, corev1.ResourcePersistentVolumeClaims}

// evaded returns why a claim of a virtual class must get no data in a real class; empty if it may. The real claim is in another namespace, so quotas for the
// real class do not count it. An administrator who bounds the real class in a namespace has to bound the virtual class there as well.
func evaded(namespace, virtual, real string, quotas []corev1.ResourceQuota) string {
	of := func(class string, what corev1.ResourceName) corev1.ResourceName {
		return corev1.ResourceName(class + ".storageclass.storage.k8s.io/" + string(what))
	}
	for _, what := range classResources {
		bounds := func(class string) int {
			return slices.IndexFunc(quotas, func(one corev1.ResourceQuota) bool { _, there := one.Spec.Hard[of(class, what)]; return there })
		}
		if at := bounds(real); at >= 0 && bounds(virtual) < 0 {
			return fmt.Sprintf("quota %s/%s bounds %s, which does not count claims of the virtual class %s with data in that class: use class %s "+
				"itself, or have an administrator bound %s in a quota of the namespace as well",
				namespace, quotas[at].Name, of(real, what), virtual, real, of(virtual, what))
		}
	}
	return ""
}

// quotaProblem reads what evaded decides on. real is empty for the default class.
func quotaProblem(ctx context.Context, cached client.Reader, kube kubernetes.Interface, claim *corev1.PersistentVolumeClaim, real string) (string, error) {
	if real == "" {
		var classes storagev1.StorageClassList
		if err := cached.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("list storage classes: %w", err)
		}
		if class := storageclass.Default(classes.Items); class != nil {
			real = class.Name
		}
	}
	quotas, err := kube.CoreV1().ResourceQuotas(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list quotas of namespace %s: %w", claim.Namespace, err)
	}
	virtual, _ := storageclass.Of(claim)
	return evaded(claim.Namespace, virtual, real, quotas.Items), nil
}
