// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	vkconfig "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// maxMapped bounds the namespaces in a provider's status.
const maxMapped = 10_000

// namespacesSpecIntent is the desired mapping of namespaces.
func namespacesSpecIntent(local *vkv1alpha1.NamespaceMap, copied Meta) *vkconfig.NamespaceMapApplyConfiguration {
	intent := vkconfig.NamespaceMap(copied.name, copied.namespace).WithLabels(copied.labels).WithAnnotations(copied.annotations)
	if len(local.Spec.DesiredMapping) > 0 {
		intent.WithSpec(vkconfig.NamespaceMapSpec().WithDesiredMapping(local.Spec.DesiredMapping))
	}
	return intent
}

func namespacesCheck(untyped map[string]any) error {
	current, _, err := unstructured.NestedMap(untyped, "status", "currentMapping")
	if err == nil && len(current) > maxMapped {
		err = fmt.Errorf("status.currentMapping has %d entries, at most %d are accepted", len(current), maxMapped)
	}
	return err
}

// namespacesStatusIntent is the status of the namespaces that we desire, under the names that we desire, and of those
// that we desired before until they are gone. It drops every other namespace in the provider's status: a virtual kubelet
// works in the namespaces that are named here.
func namespacesStatusIntent(local, remote *vkv1alpha1.NamespaceMap) *vkconfig.NamespaceMapApplyConfiguration {
	kept := map[string]vkconfig.RemoteNamespaceStatusApplyConfiguration{}
	keep := func(namespace, name string, status vkv1alpha1.RemoteNamespaceStatus) {
		one := vkconfig.RemoteNamespaceStatus().WithRemoteNamespace(name).WithPhase(status.Phase)
		if status.Message != "" {
			one.WithMessage(Line(status.Message))
		}
		kept[namespace] = *one
	}
	for namespace, name := range local.Spec.DesiredMapping {
		status, found := remote.Status.CurrentMapping[namespace]
		switch {
		case !found:
		case status.Phase == vkv1alpha1.MappingCreationLoopBackOff,
			status.RemoteNamespace == name && (status.Phase == vkv1alpha1.MappingAccepted || status.Phase == vkv1alpha1.MappingTerminating):
			keep(namespace, name, status)
		}
	}
	for namespace, before := range local.Status.CurrentMapping {
		_, desired := local.Spec.DesiredMapping[namespace]
		status, found := remote.Status.CurrentMapping[namespace]
		_, requested := remote.Spec.DesiredMapping[namespace]
		switch {
		case desired:
		case requested: // the copy does not show yet that it is not desired any more
			keep(namespace, before.RemoteNamespace, vkv1alpha1.RemoteNamespaceStatus{Phase: vkv1alpha1.MappingTerminating})
		case found && status.RemoteNamespace == before.RemoteNamespace && status.Phase != vkv1alpha1.MappingCreationLoopBackOff:
			status.Phase = vkv1alpha1.MappingTerminating
			keep(namespace, before.RemoteNamespace, status)
		}
	}
	if len(kept) == 0 && len(local.Status.CurrentMapping) == 0 {
		return nil
	}
	intent := vkconfig.NamespaceMap(local.Name, local.Namespace)
	if len(kept) > 0 { // an API server turns an empty map that replaces entries into null, and refuses it
		intent.WithStatus(vkconfig.NamespaceMapStatus().WithCurrentMapping(kept))
	}
	return intent
}
