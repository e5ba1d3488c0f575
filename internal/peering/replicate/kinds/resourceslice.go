// SPDX-License-Identifier: Apache-2.0

package kinds

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
	"liqo.io/liqo/internal/kube/printable"
)

// sliceSpecIntent is the request.
func sliceSpecIntent(local *sharingv1alpha1.ResourceSlice, copied Meta) *sharingconfig.ResourceSliceApplyConfiguration {
	spec := sharingconfig.ResourceSliceSpec().
		WithConsumerClusterID(local.Spec.ConsumerClusterID).
		WithProviderClusterID(local.Spec.ProviderClusterID).
		WithNodeName(local.Spec.NodeName)
	if len(local.Spec.Resources) > 0 {
		spec.WithResources(local.Spec.Resources)
	}
	if local.Spec.AuthURL != "" {
		spec.WithAuthURL(local.Spec.AuthURL)
	}
	if local.Spec.ProxyURL != "" {
		spec.WithProxyURL(local.Spec.ProxyURL)
	}
	return sharingconfig.ResourceSlice(copied.name, copied.namespace).
		WithLabels(copied.labels).WithAnnotations(copied.annotations).WithSpec(spec)
}

// amountPattern is the pattern of quantities in our resource definition, which bounds them. The provider's may differ.
var amountPattern = regexp.MustCompile(`^(\+|-)?([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$`)

// proxyPattern is the pattern of the URL of a proxy in our resource definition, and maxProxyURL bounds it.
var proxyPattern = regexp.MustCompile(`^http://[a-zA-Z0-9.\-_:]+@[0-9.]+:8118$`)

const maxProxyURL = 2048

// sliceCheck refuses quantities that are too expensive to parse.
func sliceCheck(untyped map[string]any) error {
	for _, path := range [][]string{{"spec", "resources"}, {"status", "resources"}, {"status", "prices"}} {
		amounts, _, err := unstructured.NestedMap(untyped, path...)
		if err != nil {
			return err
		}
		if len(amounts) > maxAmounts {
			return fmt.Errorf("%s has %d entries, at most %d are accepted", strings.Join(path, "."), len(amounts), maxAmounts)
		}
		for name, amount := range amounts {
			switch amount := amount.(type) {
			case int64:
			case string:
				if !amountPattern.MatchString(amount) {
					return fmt.Errorf("%s: %.60q is not a valid amount of %.60q", strings.Join(path, "."), amount, name)
				}
			default:
				return fmt.Errorf("%s: the amount of %.60q is neither a string nor an integer", strings.Join(path, "."), name)
			}
		}
	}
	return nil
}

// Bounds of what is copied from a provider's status. It is stored in etcd and changes often, so it must be small.
const (
	maxAmounts = 64
	maxLabels  = 64
	maxClasses = 64
	maxImages  = 50 // as a kubelet
	maxNames   = 5  // of an image, as a kubelet
	maxWords   = 8
	maxText    = 512
)

// Line makes a text of a peer fit for conditions and logs.
func Line(text string) string { return printable.Line(text, maxText) }

// labelValues keeps the first ones that are valid as the value of a label, because they become one.
func labelValues(all []string) (kept []string) {
	for _, one := range all {
		if len(kept) < maxWords && one != "" && len(validation.IsValidLabelValue(one)) == 0 {
			kept = append(kept, one)
		}
	}
	return kept
}

// class reports whether a name is valid for a storage or ingress class.
func class(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// fewLabels keeps the first valid labels, sorted by key.
func fewLabels(all map[string]string) map[string]string {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(kept) < maxLabels && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(all[key])) == 0 {
			kept[key] = all[key]
		}
	}
	return kept
}

func fewImages(all []corev1.ContainerImage) (kept []corev1.ContainerImage) {
	for _, image := range all[:min(len(all), maxImages)] {
		var names []string
		for _, name := range image.Names[:min(len(image.Names), maxNames)] {
			names = append(names, Line(name))
		}
		kept = append(kept, corev1.ContainerImage{Names: names, SizeBytes: image.SizeBytes})
	}
	return kept
}

// sliceStatusIntent is the grant: all of the status except the condition NodeReady, which the consumer owns.
func sliceStatusIntent(local, remote *sharingv1alpha1.ResourceSlice) *sharingconfig.ResourceSliceApplyConfiguration {
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
	// Each cluster counts its own generations: an answer to the copy's current spec is one to ours if the specs are equal.
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
	if from.ProxyWanted {
		status.WithProxyWanted(true)
	}
	if len(from.ProxyURL) <= maxProxyURL && proxyPattern.MatchString(from.ProxyURL) {
		status.WithProxyURL(from.ProxyURL)
	}
	status.WithLabels(fewLabels(from.Labels)).WithArchitectures(labelValues(from.Architectures)...).
		WithOperatingSystems(labelValues(from.OperatingSystems)...).WithImages(fewImages(from.Images)...)
	for _, one := range from.StorageClasses[:min(len(from.StorageClasses), maxClasses)] {
		if class(one.StorageClassName) {
			status.WithStorageClasses(sharingconfig.StorageClass().WithStorageClassName(one.StorageClassName).WithDefault(one.Default).WithClones(one.Clones))
		}
	}
	for _, one := range from.IngressClasses[:min(len(from.IngressClasses), maxClasses)] {
		if class(one.IngressClassName) {
			status.WithIngressClasses(sharingconfig.IngressClass().WithIngressClassName(one.IngressClassName).WithDefault(one.Default))
		}
	}
	if granted != nil {
		condition := metaconfig.Condition().WithType(granted.Type).WithStatus(granted.Status).WithReason(granted.Reason).
			WithMessage(Line(granted.Message)).WithLastTransitionTime(granted.LastTransitionTime)
		if observed != 0 {
			condition.WithObservedGeneration(observed)
		}
		status.WithConditions(condition)
	}
	return sharingconfig.ResourceSlice(local.Name, local.Namespace).WithStatus(status)
}
