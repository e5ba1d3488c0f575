// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var metricLabels = []string{"namespace", "reflector_resource", "cluster_id", "cluster_name", "node_name"}

// vectors are created with the first engine, so that a program which only links this package pays nothing.
var vectors = sync.OnceValue(func() [2]*prometheus.CounterVec {
	items := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "liqo_virtual_kubelet_reflection_item_counter",
		Help: "Number of times an object was created, updated or found up to date in the remote cluster.",
	}, metricLabels)
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "liqo_virtual_kubelet_reflection_error_counter",
		Help: "Number of failed attempts to reflect an object.",
	}, metricLabels)
	metrics.Registry.MustRegister(items, failures)
	return [2]*prometheus.CounterVec{items, failures}
})

type counters struct{ id, name, node string }

func newCounters(o *Options) *counters {
	return &counters{id: o.Mapping.RemoteID, name: o.RemoteName, node: o.Mapping.NodeName}
}

func (c *counters) count(namespace, resource string, failed bool) {
	which := 0
	if failed {
		which = 1
	}
	vectors()[which].WithLabelValues(namespace, resource, c.id, c.name, c.node).Inc()
}

// forget deletes the series of a namespace that is no longer offloaded.
func (c *counters) forget(namespace string) {
	for _, vector := range vectors() {
		vector.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster_id": c.id, "node_name": c.node})
	}
}
