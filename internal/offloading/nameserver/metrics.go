// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"liqo.io/liqo/internal/kube/metric"
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

var (
	served    = []string{"dns"}
	questions = metric.Counters(metric.Row{
		Name: "liqo_dns_questions_total", Type: metric.Counter,
		Help: "Questions of pods of peers, by protocol and outcome: passed or translated (the DNS of this cluster answered), absent (the peer may have the name, " +
			"and nothing of it is here), apiserver (the API server of the peer), refused (of no pod of a peer), malformed, failed (the DNS of this " +
			"cluster did not answer), " +
			"dropped (too many).",
		Labels: []string{"network", "outcome"}, Roles: served,
		Panel: metric.Panel{Title: "Questions of names", Query: `sum by (outcome) (rate(liqo_dns_questions_total[5m]))`, Unit: "reqps"},
	})
	durations = metric.Durations(metric.Row{
		Name: "liqo_dns_question_duration_seconds", Type: metric.Histogram,
		Help: "How long questions took, with the answer of the DNS of this cluster and the wait for an address that is not known yet. " +
			"What is dropped does not count.",
		Roles: served,
		Panel: metric.Panel{
			Title: "Duration of questions, 99th percentile",
			Query: `histogram_quantile(0.99, sum by (le) (rate(liqo_dns_question_duration_seconds_bucket[5m])))`, Unit: "s",
		},
	}, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 1, 2.5, 5, 10)
	forwardFailures = metric.Counters(metric.Row{
		Name: "liqo_dns_forward_failures_total", Type: metric.Counter,
		Help:   "Tries to ask the DNS of this cluster that had no answer, by reason: timeout, other. A question is tried several times.",
		Labels: []string{"reason"}, Roles: served,
		Panel: metric.Panel{Title: "Failed tries to ask the DNS of the cluster", Query: `sum by (reason) (rate(liqo_dns_forward_failures_total[5m]))`, Unit: "reqps"},
	})
)

// meters are the metrics of the role.
type meters struct {
	questions *prometheus.CounterVec
	duration  prometheus.Histogram
	failures  *prometheus.CounterVec
}

// measured is made when the first server is.
var measured = sync.OnceValue(func() *meters {
	m := &meters{questions: questions(), duration: durations(), failures: forwardFailures()}
	for _, network := range []string{"udp", "tcp"} {
		for _, result := range []outcome{passed, translated, absent, own, refused, malformed, failed, dropped} {
			m.questions.WithLabelValues(network, string(result)) // so that a rate has a start
		}
	}
	for _, reason := range []string{"timeout", "other"} {
		m.failures.WithLabelValues(reason)
	}
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
