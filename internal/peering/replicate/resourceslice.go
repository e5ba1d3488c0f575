// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
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

// amountPattern is what quantities are written as, bounded like in our own resource definition: the provider's may be another.
var amountPattern = regexp.MustCompile(`^(\+|-)?([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$`)

// sliceCheck refuses amounts that nobody can count with.
func sliceCheck(untyped map[string]any) error {
	for _, path := range [][]string{{"spec", "resources"}, {"status", "resources"}, {"status", "prices"}} {
		amounts, _, err := unstructured.NestedMap(untyped, path...)
		if err != nil {
			return err
		}
		if len(amounts) > mostAmounts {
			return fmt.Errorf("%s has %d entries, at most %d are understood", strings.Join(path, "."), len(amounts), mostAmounts)
		}
		for name, amount := range amounts {
			switch amount := amount.(type) {
			case int64:
			case string:
				if !amountPattern.MatchString(amount) {
					return fmt.Errorf("%s: %.60q is no amount of %.60q", strings.Join(path, "."), amount, name)
				}
			default:
				return fmt.Errorf("%s: what is said of %.60q is no amount", strings.Join(path, "."), name)
			}
		}
	}
	return nil
}

// The most that is taken over of what a provider says. Objects live in etcd, and what comes often must be small.
const (
	mostAmounts = 64
	mostLabels  = 64
	mostClasses = 64
	mostImages  = 50 // as a kubelet
	mostNames   = 5  // of an image, as a kubelet
	mostWords   = 8
	mostText    = 512
)

func short(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostText)], "") }

// fewWords keeps the first ones that can be the value of a label, which they become.
func fewWords(all []string) (kept []string) {
	for _, one := range all {
		if len(kept) < mostWords && one != "" && len(validation.IsValidLabelValue(one)) == 0 {
			kept = append(kept, one)
		}
	}
	return kept
}

// class tells whether a name can be one of a class.
func class(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// fewLabels keeps the first labels, by name, and leaves out what is no label.
func fewLabels(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(kept) < mostLabels && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(all[key])) == 0 {
			kept[key] = all[key]
		}
	}
	return kept
}

func fewImages(all []corev1.ContainerImage) (kept []corev1.ContainerImage) {
	for _, image := range all[:min(len(all), mostImages)] {
		var names []string
		for _, name := range image.Names[:min(len(image.Names), mostNames)] {
			names = append(names, short(name))
		}
		kept = append(kept, corev1.ContainerImage{Names: names, SizeBytes: image.SizeBytes})
	}
	return kept
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
	status.WithLabels(fewLabels(from.Labels)).WithArchitectures(fewWords(from.Architectures)...).
		WithOperatingSystems(fewWords(from.OperatingSystems)...).WithImages(fewImages(from.Images)...)
	for _, one := range from.StorageClasses[:min(len(from.StorageClasses), mostClasses)] {
		if class(one.StorageClassName) {
			status.WithStorageClasses(sharingconfig.StorageClass().WithStorageClassName(one.StorageClassName).WithDefault(one.Default))
		}
	}
	for _, one := range from.IngressClasses[:min(len(from.IngressClasses), mostClasses)] {
		if class(one.IngressClassName) {
			status.WithIngressClasses(sharingconfig.IngressClass().WithIngressClassName(one.IngressClassName).WithDefault(one.Default))
		}
	}
	if granted != nil {
		condition := metaconfig.Condition().WithType(granted.Type).WithStatus(granted.Status).WithReason(granted.Reason).
			WithMessage(short(granted.Message)).WithLastTransitionTime(granted.LastTransitionTime)
		if observed != 0 {
			condition.WithObservedGeneration(observed)
		}
		status.WithConditions(condition)
	}
	return sharingconfig.ResourceSlice(local.Name, local.Namespace).WithStatus(status)
}
