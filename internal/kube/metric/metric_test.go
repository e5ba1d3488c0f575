// SPDX-License-Identifier: Apache-2.0

package metric_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"liqo.io/liqo/internal/kube/metric"
)

var (
	described metric.Set
	size      = described.Add(metric.Row{Name: "test_size", Type: metric.Gauge, Help: "A size.", Labels: []string{"a", "b"}})
	sent      = described.Add(metric.Row{Name: "test_sent_total", Type: metric.Counter, Help: "What was sent."})
	counted   = metric.Counters(metric.Row{Name: "test_counted_total", Type: metric.Counter, Help: "What was counted.", Labels: []string{"a"}})
	lasted    = metric.Durations(metric.Row{Name: "test_lasted_seconds", Type: metric.Histogram, Help: "How long it lasted."}, 1, 2)
)

type collector struct{}

func (collector) Describe(to chan<- *prometheus.Desc) { described.Describe(to) }
func (collector) Collect(to chan<- prometheus.Metric) {
	to <- size.Sample(7, "x", "y")
	to <- sent.Sample(8)
}

// TestRegistered: what is registered has the name, type, help and labels of its row, each row that is used is registered, and nothing is before its first use.
func TestRegistered(t *testing.T) {
	if have := gathered(t, metrics.Registry); len(have) > 0 {
		t.Errorf("registered before its first use: %v", have)
	}
	counted().WithLabelValues("x").Inc()
	lasted().Observe(1)
	pedantic := prometheus.NewPedanticRegistry() // refuses samples that are not described
	pedantic.MustRegister(collector{})
	have := append(gathered(t, pedantic), gathered(t, metrics.Registry)...)
	slices.SortFunc(have, func(a, b metric.Row) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
	if diff := cmp.Diff(metric.Rows(), have); diff != "" {
		t.Errorf("-declared +registered\n%s", diff)
	}
}

func gathered(t *testing.T, from prometheus.Gatherer) (rows []metric.Row) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]metric.Type{"COUNTER": metric.Counter, "GAUGE": metric.Gauge, "HISTOGRAM": metric.Histogram}
	for _, family := range families {
		row := metric.Row{Name: family.GetName(), Type: names[family.GetType().String()], Help: family.GetHelp()}
		for _, label := range family.GetMetric()[0].GetLabel() {
			row.Labels = append(row.Labels, label.GetName())
		}
		if row.Name[:5] == "test_" {
			rows = append(rows, row)
		}
	}
	return rows
}
