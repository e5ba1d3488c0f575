// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	vkconfig "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// mostMapped is how many namespaces a provider may speak of.
const mostMapped = 10_000

// namespacesThere sends the wish for twins.
func namespacesThere(local *vkv1alpha1.NamespaceMap, copied meta) *vkconfig.NamespaceMapApplyConfiguration {
	intent := vkconfig.NamespaceMap(copied.name, copied.namespace).WithLabels(copied.labels).WithAnnotations(copied.annotations)
	if len(local.Spec.DesiredMapping) > 0 {
		intent.WithSpec(vkconfig.NamespaceMapSpec().WithDesiredMapping(local.Spec.DesiredMapping))
	}
	return intent
}

func namespacesCheck(untyped map[string]any) error {
	said, _, err := unstructured.NestedMap(untyped, "status", "currentMapping")
	if err == nil && len(said) > mostMapped {
		err = fmt.Errorf("status.currentMapping has %d entries, at most %d are understood", len(said), mostMapped)
	}
	return err
}

// namespacesHere brings what became of the namespaces that we ask for, under the names that we ask for, and of those that we asked for
// until they are gone. Who else the provider speaks of is none of ours: a virtual kubelet works in the namespaces that are named here.
func namespacesHere(local, remote *vkv1alpha1.NamespaceMap) *vkconfig.NamespaceMapApplyConfiguration {
	kept := map[string]vkconfig.RemoteNamespaceStatusApplyConfiguration{}
	keep := func(namespace, name string, said vkv1alpha1.RemoteNamespaceStatus) {
		one := vkconfig.RemoteNamespaceStatus().WithRemoteNamespace(name).WithPhase(said.Phase)
		if said.Message != "" {
			one.WithMessage(short(said.Message))
		}
		kept[namespace] = *one
	}
	for namespace, name := range local.Spec.DesiredMapping {
		said, is := remote.Status.CurrentMapping[namespace]
		switch {
		case !is:
		case said.Phase == vkv1alpha1.MappingCreationLoopBackOff,
			said.RemoteNamespace == name && (said.Phase == vkv1alpha1.MappingAccepted || said.Phase == vkv1alpha1.MappingTerminating):
			keep(namespace, name, said)
		}
	}
	for namespace, before := range local.Status.CurrentMapping {
		_, wanted := local.Spec.DesiredMapping[namespace]
		said, is := remote.Status.CurrentMapping[namespace]
		_, asked := remote.Spec.DesiredMapping[namespace]
		switch {
		case wanted:
		case asked: // the provider has not heard that it is not wanted any more
			keep(namespace, before.RemoteNamespace, vkv1alpha1.RemoteNamespaceStatus{Phase: vkv1alpha1.MappingTerminating})
		case is && said.RemoteNamespace == before.RemoteNamespace && said.Phase != vkv1alpha1.MappingCreationLoopBackOff:
			said.Phase = vkv1alpha1.MappingTerminating
			keep(namespace, before.RemoteNamespace, said)
		}
	}
	if len(kept) == 0 && len(local.Status.CurrentMapping) == 0 {
		return nil
	}
	intent := vkconfig.NamespaceMap(local.Name, local.Namespace)
	if len(kept) > 0 { // of an empty status that was not empty, an API server makes null, and refuses it
		intent.WithStatus(vkconfig.NamespaceMapStatus().WithCurrentMapping(kept))
	}
	return intent
}
