// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"liqo.io/liqo/internal/kube/metric"
)

var (
	metricLabels = []string{"namespace", "reflector_resource", "cluster_id", "cluster_name", "node_name"}
	kubelet      = []string{"virtual-kubelet"}

	described metric.Set
	// The documented name ends with counter, and the documented meaning is that of a gauge.
	items = described.Add(metric.Row{
		Name: "liqo_virtual_kubelet_reflection_item_counter", Type: metric.Gauge,
		Help:   "Number of objects that are reflected to the remote cluster now.",
		Labels: metricLabels, Roles: kubelet,
		Panel: metric.Panel{
			Title: "Reflected objects", Query: `sum by (cluster_name, reflector_resource) (liqo_virtual_kubelet_reflection_item_counter)`, Unit: "short",
		},
	})
	failures = metric.Counters(metric.Row{
		Name: "liqo_virtual_kubelet_reflection_error_counter", Type: metric.Counter,
		Help:   "Number of failed attempts to reflect an object.",
		Labels: metricLabels, Roles: kubelet,
		Panel: metric.Panel{
			Title: "Failed attempts to reflect",
			Query: `sum by (cluster_name, reflector_resource) (rate(liqo_virtual_kubelet_reflection_error_counter[5m]))`, Unit: "ops",
		},
	})
)

// series are the metrics of all engines of this process. They exist from the first engine on, so that a program which only links this package pays
// nothing.
type series struct {
	mu      sync.Mutex
	engines map[*Engine]bool
}

var registered = sync.OnceValue(func() *series {
	s := &series{engines: map[*Engine]bool{}}
	metrics.Registry.MustRegister(s)
	return s
})

// Describe implements prometheus.Collector.
func (s *series) Describe(to chan<- *prometheus.Desc) { described.Describe(to) }

// Collect implements prometheus.Collector.
func (s *series) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for engine := range s.engines {
		o := &engine.options
		engine.Namespaces.Each(func(m *Mapping) {
			for _, l := range engine.all() {
				if l.Reflected != nil {
					to <- items.Sample(float64(l.Reflected(m)), m.Local, l.Name, o.Mapping.RemoteID, o.RemoteName, o.Mapping.NodeName)
				}
			}
		})
	}
}

// observe includes an engine in the metrics until the returned function is called.
func (s *series) observe(e *Engine) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engines[e] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.engines, e)
	}
}

// CountFailure counts a failed attempt to reflect an object.
func (e *Engine) CountFailure(namespace, resource string) {
	o := &e.options
	failures().WithLabelValues(namespace, resource, o.Mapping.RemoteID, o.RemoteName, o.Mapping.NodeName).Inc()
}

// forgetFailures deletes the series of a namespace that is no longer offloaded.
func (e *Engine) forgetFailures(namespace string) {
	failures().DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster_id": e.options.Mapping.RemoteID, "node_name": e.options.Mapping.NodeName})
}

// Amount is how many of the objects are counted, for Loop.Reflected.
func Amount(all []client.Object, counts func(client.Object) bool) (n int) {
	for _, object := range all {
		if counts(object) {
			n++
		}
	}
	return n
}
