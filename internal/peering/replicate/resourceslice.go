// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaconfig "k8s.io/client-go/applyconfigurations/meta/v1"

	sharingconfig "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// sliceThere sends the request.
func sliceThere(local *sharingv1alpha1.ResourceSlice, copied meta) *sharingconfig.ResourceSliceApplyConfiguration {
	spec := sharingconfig.ResourceSliceSpec().
		WithConsumerClusterID(local.Spec.ConsumerClusterID).
		WithProviderClusterID(local.Spec.ProviderClusterID).
		WithNodeName(local.Spec.NodeName)
	if len(local.Spec.Resources) > 0 {
		spec.WithResources(local.Spec.Resources)
	}
	return sharingconfig.ResourceSlice(copied.name, copied.namespace).
		WithLabels(copied.labels).WithAnnotations(copied.annotations).WithSpec(spec)
}

// sliceHere brings the grant: all of the status but the condition NodeReady, which is the consumer's own.
func sliceHere(local, remote *sharingv1alpha1.ResourceSlice) *sharingconfig.ResourceSliceApplyConfiguration {
	from := remote.Status
	granted := (*metav1.Condition)(nil)
	for i := range from.Conditions {
		if from.Conditions[i].Type == sharingv1alpha1.ConditionGranted {
			granted = &from.Conditions[i]
		}
	}
	if from.Phase == "" && granted == nil && from.ObservedGeneration == 0 {
		return nil
	}
	// Generations are counted per cluster: an answer to the copy's present spec is an answer to ours, if the specs are equal.
	observed := local.Status.ObservedGeneration
	current := from.ObservedGeneration == remote.Generation && equality.Semantic.DeepEqual(local.Spec, remote.Spec)
	if current {
		observed = local.Generation
	}

	status := sharingconfig.ResourceSliceStatus()
	if from.Phase != "" {
		status.WithPhase(from.Phase)
	}
	if len(from.Resources) > 0 {
		status.WithResources(from.Resources)
	}
	if len(from.Prices) > 0 {
		status.WithPrices(from.Prices)
	}
	if observed != 0 {
		status.WithObservedGeneration(observed)
	}
	status.WithLabels(from.Labels).WithArchitectures(from.Architectures...).
		WithOperatingSystems(from.OperatingSystems...).WithImages(from.Images...)
	for _, class := range from.StorageClasses {
		status.WithStorageClasses(sharingconfig.StorageClass().WithStorageClassName(class.StorageClassName).WithDefault(class.Default))
	}
	for _, class := range from.IngressClasses {
		status.WithIngressClasses(sharingconfig.IngressClass().WithIngressClassName(class.IngressClassName).WithDefault(class.Default))
	}
	if granted != nil {
		condition := metaconfig.Condition().WithType(granted.Type).WithStatus(granted.Status).WithReason(granted.Reason).
			WithMessage(granted.Message).WithLastTransitionTime(granted.LastTransitionTime)
		if observed != 0 {
			condition.WithObservedGeneration(observed)
		}
		status.WithConditions(condition)
	}
	return sharingconfig.ResourceSlice(local.Name, local.Namespace).WithStatus(status)
}
