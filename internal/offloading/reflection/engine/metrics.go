// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	metricLabels = []string{"namespace", "reflector_resource", "cluster_id", "cluster_name", "node_name"}
	// The documented name ends with counter, and the documented meaning is that of a gauge.
	itemsDescription = prometheus.NewDesc("liqo_virtual_kubelet_reflection_item_counter", "Number of objects that are reflected to the remote cluster now.", metricLabels, nil)
)

// series are the metrics of all engines of this process. They exist from the first engine on, so that a program which only links this package pays
// nothing.
type series struct {
	failures *prometheus.CounterVec

	mu      sync.Mutex
	engines map[*Engine]bool
}

var registered = sync.OnceValue(func() *series {
	s := &series{engines: map[*Engine]bool{}, failures: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "liqo_virtual_kubelet_reflection_error_counter",
		Help: "Number of failed attempts to reflect an object.",
	}, metricLabels)}
	metrics.Registry.MustRegister(s, s.failures)
	return s
})

// Describe implements prometheus.Collector.
func (s *series) Describe(to chan<- *prometheus.Desc) { to <- itemsDescription }

// Collect implements prometheus.Collector.
func (s *series) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for engine := range s.engines {
		o := &engine.options
		engine.Namespaces.Each(func(m *Mapping) {
			for _, l := range engine.all() {
				if l.Reflected != nil {
					to <- prometheus.MustNewConstMetric(itemsDescription, prometheus.GaugeValue, float64(l.Reflected(m)), m.Local, l.Name, o.Mapping.RemoteID, o.RemoteName, o.Mapping.NodeName)
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
	registered().failures.WithLabelValues(namespace, resource, o.Mapping.RemoteID, o.RemoteName, o.Mapping.NodeName).Inc()
}

// forgetFailures deletes the series of a namespace that is no longer offloaded.
func (e *Engine) forgetFailures(namespace string) {
	registered().failures.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster_id": e.options.Mapping.RemoteID, "node_name": e.options.Mapping.NodeName})
}

// Amount is how many of the objects are counted, for Loop.Reflected.
func Amount(all []client.Object, counts func(client.Object) bool) (n int) {
	for _, one := range all {
		if counts(one) {
			n++
		}
	}
	return n
}
