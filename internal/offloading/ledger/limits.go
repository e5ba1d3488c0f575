// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Add adds bounds that are named as in a ResourceQuota: services.nodeports, services.loadbalancers, requests.storage, or a kind, with or without count/.
func (l *Limits) Add(totals corev1.ResourceList) error {
	if l.Objects == nil {
		l.Objects = map[schema.GroupResource]int64{}
	}
	for name, amount := range totals {
		most := amount.Value()
		switch name {
		case corev1.ResourceServicesNodePorts:
			l.Use[NodePorts] = most
		case corev1.ResourceServicesLoadBalancers:
			l.Use[LoadBalancers] = most
		case corev1.ResourceRequestsStorage:
			l.Use[Storage] = most
		default:
			kind := schema.ParseGroupResource(strings.TrimPrefix(string(name), "count/"))
			if !countable[kind] {
				return fmt.Errorf("%s cannot be bounded over the namespaces of a peer: want configmaps, secrets, services, services.nodeports, services.loadbalancers, ingresses.networking.k8s.io, poddisruptionbudgets.policy, persistentvolumeclaims or requests.storage", name)
			}
			l.Objects[kind] = most
		}
	}
	return nil
}

// countable are the kinds of Kubernetes that peers write.
var countable = map[schema.GroupResource]bool{
	{Resource: "configmaps"}: true, {Resource: "secrets"}: true, Services: true, Claims: true, {Group: "networking.k8s.io", Resource: "ingresses"}: true,
	{Group: "policy", Resource: "poddisruptionbudgets"}: true,
}
