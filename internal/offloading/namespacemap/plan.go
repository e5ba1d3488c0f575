// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"slices"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/provider"
)

// mapping returns the desired remote namespace of every namespace offloaded to p, and, sorted, the namespaces whose remote pods must not reach this
// API server, those of which only referenced objects are copied, what the pods of each may lack, those whose pods tolerate for longer that p does not
// answer, and the kinds of custom resources of each. elsewhere reports whether another provider is asked for a namespace; it is called for those with
// such kinds.
func mapping(all []offloadingv1alpha1.NamespaceOffloading, p *provider.Provider, elsewhere func(namespace string) bool) vkv1alpha1.NamespaceMapSpec {
	spec := vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{}}
	for i := range all {
		offloading := &all[i]
		if offloading.Name != offloadingv1alpha1.NamespaceOffloadingName || offloading.Status.RemoteNamespaceName == "" || !provider.Chooses(offloading, p) {
			continue
		}
		spec.DesiredMapping[offloading.Namespace] = offloading.Status.RemoteNamespaceName
		if !apiServerSupport(offloading) {
			spec.WithoutAPIServer = append(spec.WithoutAPIServer, offloading.Namespace)
		}
		if offloading.Spec.Reflection == offloadingv1alpha1.ReflectReferenced {
			spec.ReferencedOnly = append(spec.ReferencedOnly, offloading.Namespace)
		}
		for _, field := range offloading.Spec.RunWithout {
			if spec.RunWithout == nil {
				spec.RunWithout = map[string][]string{}
			}
			spec.RunWithout[offloading.Namespace] = append(spec.RunWithout[offloading.Namespace], string(field))
		}
		if seconds := offloading.Spec.UnreachableTolerationSeconds; seconds != nil {
			if spec.UnreachableTolerationSeconds == nil {
				spec.UnreachableTolerationSeconds = map[string]int64{}
			}
			spec.UnreachableTolerationSeconds[offloading.Namespace] = *seconds
		}
		if len(offloading.Spec.CustomResources) > 0 {
			if spec.CustomResources == nil {
				spec.CustomResources = map[string][]vkv1alpha1.ReflectedKind{}
			}
			spec.CustomResources[offloading.Namespace] = reflectedKinds(offloading.Spec.CustomResources, p, elsewhere(offloading.Namespace))
		}
	}
	slices.Sort(spec.WithoutAPIServer)
	slices.Sort(spec.ReferencedOnly)
	return spec
}

// reflectedKinds returns which kinds of custom resources p gets. The status of objects that several providers have comes back from the one that is
// named only: the others would take turns.
func reflectedKinds(listed []offloadingv1alpha1.CustomResource, p *provider.Provider, elsewhere bool) (kinds []vkv1alpha1.ReflectedKind) {
	for _, resource := range listed {
		kinds = append(kinds, vkv1alpha1.ReflectedKind{
			APIVersion: resource.APIVersion, Kind: resource.Kind,
			Status: resource.StatusFrom == "" && !elsewhere || resource.StatusFrom != "" && resource.StatusFrom == p.NodeName,
		})
	}
	return kinds
}

// apiServerSupport reports whether remote pods of the namespace may use this API server. An invalid value, which the webhook refuses, means no:
// tokens cannot be revoked once they are handed out.
func apiServerSupport(offloading *offloadingv1alpha1.NamespaceOffloading) bool {
	value, ok := offloading.Annotations[labels.APIServerSupport]
	return !ok || value == "true"
}
