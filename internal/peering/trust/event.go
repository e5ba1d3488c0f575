// SPDX-License-Identifier: Apache-2.0

// Package trust sends the events about whom this cluster trusts with what, and counts them.
package trust

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/metric"
)

// Event is one event about whom this cluster trusts with what. Its reason is also a value of the metric.
type Event struct {
	kind string
	// Reason is empty if there is no event.
	Reason, Note string
}

var counter = metric.Counters(metric.Row{
	Name: "liqo_peer_trust_events_total", Type: metric.Counter,
	Help:   "Events about the trust in peers, by the reason of the Kubernetes event: admissions, refusals, decisions, late renewals, new addresses.",
	Labels: []string{"reason"},
	Roles:  []string{"controller-manager"},
	Panel:  metric.Panel{Title: "Changes of the trust in peers", Query: `sum by (reason) (increase(liqo_peer_trust_events_total[1h]))`, Unit: "short"},
})

// Normal is an event that an administrator need not act on.
func Normal(reason, note string) Event { return Event{corev1.EventTypeNormal, reason, note} }

// Warning is an event that an administrator should look at.
func Warning(reason, note string) Event { return Event{corev1.EventTypeWarning, reason, note} }

// Send sends the event, if there is one.
func (e Event) Send(recorder events.EventRecorder, about client.Object, action string) {
	if e.Reason == "" {
		return
	}
	counter().WithLabelValues(e.Reason).Inc()
	recorder.Eventf(about, nil, e.kind, e.Reason, action, "%s", e.Note)
}
