// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"maps"
	"slices"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/action/deletion"
)

// OffloadedNamespace is a namespace that extends to other clusters.
type OffloadedNamespace struct {
	Namespace string `json:"namespace"`
	Phase     string `json:"phase"`
	// Pods is the strategy: where pods may run.
	Pods string `json:"podOffloadingStrategy"`
	// Clusters are the chosen ones, and Remote is the name of the namespace there.
	Clusters []string `json:"clusters,omitempty"`
	Remote   string   `json:"remoteNamespace,omitempty"`
	// Message lists what is not ready.
	Message string `json:"message,omitempty"`
}

// newOffloadedNamespaces is pure; the result is ordered by name.
func newOffloadedNamespaces(all []offloadingv1alpha1.NamespaceOffloading) (namespaces []OffloadedNamespace) {
	for i := range all {
		one := &all[i]
		namespace := OffloadedNamespace{
			Namespace: one.Namespace, Phase: cmp.Or(string(one.Status.OffloadingPhase), "not processed yet"),
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
			namespace.Message = deletion.Unready(one)
		}
		namespaces = append(namespaces, namespace)
	}
	slices.SortFunc(namespaces, func(a, b OffloadedNamespace) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return namespaces
}

// RemoteNamespace is a namespace of one cluster and the remote namespace for it in another cluster.
type RemoteNamespace struct {
	Namespace string `json:"namespace"`
	Remote    string `json:"remoteNamespace"`
	Phase     string `json:"phase"`
	Message   string `json:"message,omitempty"`
}

// newRemoteNamespaces is pure: it returns the namespaces offloaded to a peer, and those that the peer offloads to this
// cluster, ordered by name.
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

// remoteNamespacesOf returns the desired ones and those that are being deleted.
func remoteNamespacesOf(one *vkv1alpha1.NamespaceMap) (all []RemoteNamespace) {
	names := maps.Clone(one.Spec.DesiredMapping)
	if names == nil {
		names = map[string]string{}
	}
	for namespace, current := range one.Status.CurrentMapping {
		if names[namespace] == "" {
			names[namespace] = current.RemoteNamespace
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(names)) {
		remote := RemoteNamespace{Namespace: namespace, Remote: names[namespace], Phase: "Creating"}
		if current, known := one.Status.CurrentMapping[namespace]; known {
			remote.Phase, remote.Message = string(current.Phase), current.Message
		}
		all = append(all, remote)
	}
	return all
}
