// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// outcome is what became of a question. Peers choose names and addresses, so no metric has those.
type outcome string

const (
	// passed is answered by the DNS of this cluster, translated is so as well, under another name or with other names.
	passed, translated outcome = "passed", "translated"
	// absent is a name of the consumer of which nothing is here, own one of the API server of the pod's cluster.
	absent, own outcome = "absent", "apiserver"
	// refused is of an address that is no peer's pod, malformed no question or one that is never answered, failed has no answer of the DNS of this cluster.
	refused, malformed, failed outcome = "refused", "malformed", "failed"
	// dropped is more than an address, or all, may ask.
	dropped outcome = "dropped"
)

// meters are the metrics of the role.
type meters struct {
	questions *prometheus.CounterVec
	duration  prometheus.Histogram
	failures  *prometheus.CounterVec
}

// measured is made when the first server is.
var measured = sync.OnceValue(func() *meters {
	m := &meters{
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liqo_dns_questions_total",
			Help: "Questions of pods of peers, by protocol and outcome: passed or translated (the DNS of this cluster answered), absent (the peer may have the name, and nothing of it is here), " +
				"apiserver (the API server of the peer), refused (of no pod of a peer), malformed, failed (the DNS of this cluster did not answer), dropped (too many).",
		}, []string{"network", "outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "liqo_dns_question_duration_seconds",
			Help:    "How long questions took, with the answer of the DNS of this cluster and the wait for an address that is not known yet. What is dropped does not count.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 1, 2.5, 5, 10},
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liqo_dns_forward_failures_total",
			Help: "Tries to ask the DNS of this cluster that had no answer, by reason: timeout, other. A question is tried several times.",
		}, []string{"reason"}),
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, one := range []outcome{passed, translated, absent, own, refused, malformed, failed, dropped} {
			m.questions.WithLabelValues(network, string(one)) // so that a rate has a start
		}
	}
	for _, reason := range []string{"timeout", "other"} {
		m.failures.WithLabelValues(reason)
	}
	metrics.Registry.MustRegister(m.questions, m.duration, m.failures)
	return m
})

// count counts a question.
func (m *meters) count(network string, what outcome, began time.Time) {
	m.questions.WithLabelValues(network, string(what)).Inc()
	m.duration.Observe(time.Since(began).Seconds())
}

func (m *meters) dropped(network string) {
	m.questions.WithLabelValues(network, string(dropped)).Inc()
}

// forwardFailed counts a try that had no answer.
func (m *meters) forwardFailed(err error) {
	reason := "other"
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		reason = "timeout"
	}
	m.failures.WithLabelValues(reason).Inc()
}
