// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"liqo.io/liqo/apis/labels"
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
		c := engine.counts
		engine.reflected(func(namespace, resource string, number int) {
			to <- prometheus.MustNewConstMetric(itemsDescription, prometheus.GaugeValue, float64(number), namespace, resource, c.id, c.name, c.node)
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

type counters struct{ id, name, node string }

func newCounters(o *Options) *counters {
	return &counters{id: o.Mapping.RemoteID, name: o.RemoteName, node: o.Mapping.NodeName}
}

// failed counts a failed attempt.
func (c *counters) failed(namespace, resource string) {
	registered().failures.WithLabelValues(namespace, resource, c.id, c.name, c.node).Inc()
}

// forget deletes the series of a namespace that is no longer offloaded.
func (c *counters) forget(namespace string) {
	registered().failures.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster_id": c.id, "node_name": c.node})
}

// reflected reports how many objects of each offloaded namespace and kind the remote cluster has from us, according to the caches.
func (e *Engine) reflected(report func(namespace, resource string, number int)) {
	e.mappings.each(func(m *mapping) {
		for _, r := range e.reflectors {
			report(m.Local, r.kind.name, amount(r.remote.All(m.Remote), func(remote client.Object) bool { return r.manages(m, remote) }))
		}
		if e.pods != nil {
			report(m.Local, podKind, amount(e.pods.shadows.All(m.Remote), func(shadow client.Object) bool { return m.Reflected(shadow) }))
		}
		if e.tokens != nil {
			report(m.Local, "ServiceAccount", amount(e.tokens.secrets().All(m.Remote), func(secret client.Object) bool {
				return m.Reflected(secret) && secret.GetLabels()[labels.TokenPod] != ""
			}))
		}
	})
}

// amount is how many of the objects are counted.
func amount(all []client.Object, counts func(client.Object) bool) (n int) {
	for _, one := range all {
		if counts(one) {
			n++
		}
	}
	return n
}
