// SPDX-License-Identifier: Apache-2.0

package ssa

import "liqo.io/liqo/internal/kube/metric"

var applies = metric.Counters(metric.Row{
	Name: "liqo_apply_total", Type: metric.Counter,
	Help:   "Server-side applies by field owner and result: applied (a request was sent), skipped (it would have changed nothing), failed.",
	Labels: []string{"owner", "result"},
	Roles:  []string{"controller-manager", "virtual-kubelet"},
	Panel:  metric.Panel{Title: "Applies", Query: `sum by (owner, result) (rate(liqo_apply_total[5m]))`, Unit: "reqps"},
})

func count(owner, result string) { applies().WithLabelValues(owner, result).Inc() }
