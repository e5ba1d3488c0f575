// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/liqo/internal/offloading/kinds"
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
			if countable := countable(); !slices.Contains(countable, kind) {
				return fmt.Errorf("%s cannot be bounded over the namespaces of a peer: want %s", name, wanted(countable))
			}
			l.Objects[kind] = most
		}
	}
	return nil
}

// countable returns the kinds of Kubernetes that peers write.
func countable() (all []schema.GroupResource) {
	for _, kind := range kinds.Where(func(kind *kinds.Kind) bool { return kind.Counted && kind.Remote == kind.Local }) {
		all = append(all, kind.Remote.GroupResource())
	}
	return all
}

// wanted lists what can be bounded.
func wanted(countable []schema.GroupResource) string {
	var names []string
	for _, kind := range countable {
		if names = append(names, kind.String()); kind == Services {
			names = append(names, string(corev1.ResourceServicesNodePorts), string(corev1.ResourceServicesLoadBalancers))
		}
	}
	return strings.Join(names, ", ") + " or " + string(corev1.ResourceRequestsStorage)
}
