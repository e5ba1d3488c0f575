// SPDX-License-Identifier: Apache-2.0

// Package metric declares each metric of Liqo as a row: its name, type, help and labels, the processes that serve it, and its panel in a dashboard. A row
// stands beside the code that measures it. docs/reference/metrics.md is made of the rows.
//
// It must not know what is measured. No other package makes metrics, which TestMetricsAreRows of the conventions holds; its own proof is metric_test.go.
package metric

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Type is how the values of a metric are read.
type Type string

// The types of Prometheus that are in use.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Panel is how a dashboard shows a metric.
type Panel struct {
	Title string
	// Query is PromQL, Unit the name that Grafana has for it.
	Query, Unit string
}

// Row declares a metric. Its name, type and labels are a promise to users.
type Row struct {
	Name   string
	Type   Type
	Help   string
	Labels []string
	// Roles are the processes that serve it.
	Roles []string
	Panel Panel
}

// declared grows while packages are initialized, which is one after the other.
var declared []Row

// Rows returns the rows of all packages that the program links, by name.
func Rows() []Row {
	return slices.SortedFunc(slices.Values(declared), func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
}

// Counters declares a row, and returns what makes and registers its counters at the first call: a program that only links a package pays nothing for it.
func Counters(row Row) func() *prometheus.CounterVec {
	declared = append(declared, row)
	return sync.OnceValue(func() *prometheus.CounterVec {
		counters := prometheus.NewCounterVec(prometheus.CounterOpts{Name: row.Name, Help: row.Help}, row.Labels)
		metrics.Registry.MustRegister(counters)
		return counters
	})
}

// Durations is Counters for a histogram without labels.
func Durations(row Row, buckets ...float64) func() prometheus.Histogram {
	declared = append(declared, row)
	return sync.OnceValue(func() prometheus.Histogram {
		durations := prometheus.NewHistogram(prometheus.HistogramOpts{Name: row.Name, Help: row.Help, Buckets: buckets})
		metrics.Registry.MustRegister(durations)
		return durations
	})
}

// Series are counters and gauges that a collector reads when it is asked.
type Series struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
}

// Sample returns a value of the series.
func (s *Series) Sample(value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(s.description, s.kind, value, labels...)
}

// Set is what one collector has.
type Set []*Series

// Add declares a row of the collector.
func (s *Set) Add(row Row) *Series {
	declared = append(declared, row)
	series := &Series{description: prometheus.NewDesc(row.Name, row.Help, row.Labels, nil), kind: prometheus.GaugeValue}
	if row.Type == Counter {
		series.kind = prometheus.CounterValue
	}
	*s = append(*s, series)
	return series
}

// Describe implements that half of prometheus.Collector.
func (s *Set) Describe(to chan<- *prometheus.Desc) {
	for _, series := range *s {
		to <- series.description
	}
}
