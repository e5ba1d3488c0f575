// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// applies is made when the first object is applied: a program that links this package pays nothing at its start.
var applies = sync.OnceValue(func() *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "liqo_apply_total",
		Help: "Server-side applies by field owner and result: applied (a request was sent), skipped (it would have changed nothing), failed.",
	}, []string{"owner", "result"})
	metrics.Registry.MustRegister(counter)
	return counter
})

func count(owner, result string) { applies().WithLabelValues(owner, result).Inc() }
