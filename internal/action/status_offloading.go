// SPDX-License-Identifier: Apache-2.0

package action

import (
	"cmp"
	"maps"
	"slices"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// OffloadedNamespace is a namespace that extends to other clusters.
type OffloadedNamespace struct {
	Namespace string `json:"namespace"`
	Phase     string `json:"phase"`
	// Pods is where they may run.
	Pods string `json:"podOffloadingStrategy"`
	// Clusters are those that were chosen, and Remote what the namespace is called there.
	Clusters []string `json:"clusters,omitempty"`
	Remote   string   `json:"remoteNamespace,omitempty"`
	// Message is what stands against it.
	Message string `json:"message,omitempty"`
}

// newOffloadedNamespaces is pure; they are ordered by name.
func newOffloadedNamespaces(all []offloadingv1alpha1.NamespaceOffloading) (namespaces []OffloadedNamespace) {
	for i := range all {
		one := &all[i]
		namespace := OffloadedNamespace{
			Namespace: one.Namespace, Phase: cmp.Or(string(one.Status.OffloadingPhase), "not looked at yet"),
			Pods: string(one.Spec.PodOffloadingStrategy), Remote: one.Status.RemoteNamespaceName,
		}
		for _, cluster := range slices.Sorted(maps.Keys(one.Status.RemoteNamespacesConditions)) {
			for _, condition := range one.Status.RemoteNamespacesConditions[cluster] {
				if condition.Type == offloadingv1alpha1.ConditionOffloadingRequired && condition.Status == "True" {
					namespace.Clusters = append(namespace.Clusters, cluster)
				}
			}
		}
		switch one.Status.OffloadingPhase {
		case offloadingv1alpha1.OffloadingReady, offloadingv1alpha1.OffloadingNoClusterSelected:
		default:
			namespace.Message = unready(one)
		}
		namespaces = append(namespaces, namespace)
	}
	slices.SortFunc(namespaces, func(a, b OffloadedNamespace) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return namespaces
}

// RemoteNamespace is a namespace of one cluster and its counterpart in another one.
type RemoteNamespace struct {
	Namespace string `json:"namespace"`
	Remote    string `json:"remoteNamespace"`
	Phase     string `json:"phase"`
	Message   string `json:"message,omitempty"`
}

// newRemoteNamespaces is pure: the namespaces that extend to a peer, and those of the peer that extend to this cluster, ordered by name.
func newRemoteNamespaces(peer string, all []vkv1alpha1.NamespaceMap) (offloaded, hosted []RemoteNamespace) {
	for i := range all {
		switch one := &all[i]; {
		case peer == "":
		case one.Labels[labels.Replicated] == "true":
			if one.Labels[labels.OriginID] == peer {
				hosted = append(hosted, remoteNamespacesOf(one)...)
			}
		case one.Labels[labels.RemoteID] == peer:
			offloaded = append(offloaded, remoteNamespacesOf(one)...)
		}
	}
	return offloaded, hosted
}

// remoteNamespacesOf are those that are wished for, and those that are on their way out.
func remoteNamespacesOf(one *vkv1alpha1.NamespaceMap) (twins []RemoteNamespace) {
	names := maps.Clone(one.Spec.DesiredMapping)
	if names == nil {
		names = map[string]string{}
	}
	for namespace, said := range one.Status.CurrentMapping {
		if names[namespace] == "" {
			names[namespace] = said.RemoteNamespace
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(names)) {
		twin := RemoteNamespace{Namespace: namespace, Remote: names[namespace], Phase: "Creating"}
		if said, known := one.Status.CurrentMapping[namespace]; known {
			twin.Phase, twin.Message = string(said.Phase), said.Message
		}
		twins = append(twins, twin)
	}
	return twins
}
