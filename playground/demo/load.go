// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"liqo.io/liqo/playground/demo/command"
	"liqo.io/liqo/playground/demo/histogram"
)

// loadPlan defines the load.
type loadPlan struct {
	url string
	// rate is requests per second over all workers; 0: as fast as answers come.
	rate        float64
	concurrency int
	duration    time.Duration
	timeout     time.Duration
	keepAlive   bool
	insecure    bool
}

func load(ctx context.Context, c command.Call) error {
	var plan loadPlan
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&plan.url, "url", "", "`URL` to get; /api/info of demo serve also reports the pod that answered")
	flags.Float64Var(&plan.rate, "rate", 50, "requests per second; 0: as many as the workers can")
	flags.IntVar(&plan.concurrency, "concurrency", 8, "number of workers, each with one request at a time")
	flags.DurationVar(&plan.duration, "duration", 10*time.Second, "how long to start requests")
	flags.DurationVar(&plan.timeout, "timeout", 5*time.Second, "longest time for one answer")
	flags.BoolVar(&plan.keepAlive, "keep-alive", false, "reuse connections; by default each request opens one, "+
		"because a Service chooses the pod per connection")
	flags.BoolVar(&plan.insecure, "insecure", false, "accept any certificate")
	output := outputFlag(flags)
	if err := command.NoArguments(c.Parse(flags)); err != nil {
		return err
	}
	if err := errors.Join(plan.validate(), validOutput(*output)); err != nil {
		return fmt.Errorf("%w: %w", command.ErrUsage, err)
	}
	report := plan.run(ctx)
	if err := report.print(c.Stdout, *output); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	if report.OK == 0 {
		return fmt.Errorf("%w: none of %d requests to %s was answered with status 2xx or 3xx", errNotMet, report.Requests, plan.url)
	}
	return nil
}

func (p loadPlan) validate() error {
	target, err := url.Parse(p.url)
	switch {
	case err != nil:
		return fmt.Errorf("--url: %w", err)
	case target.Scheme != "http" && target.Scheme != "https" || target.Host == "":
		return fmt.Errorf("--url is %q; want e.g. http://web.default.svc/api/info", p.url)
	case p.rate < 0 || p.concurrency < 1 || p.duration <= 0 || p.timeout <= 0:
		return fmt.Errorf("--rate %g --concurrency %d --duration %s --timeout %s: want positive numbers (rate may be 0)",
			p.rate, p.concurrency, p.duration, p.timeout)
	}
	return nil
}

// run makes the load and returns when the last answer is there. When ctx ends it
// starts no more requests and reports those made.
func (p loadPlan) run(ctx context.Context) loadReport {
	client := &http.Client{
		Timeout: p.timeout,
		Transport: &http.Transport{
			// With a limit, the dialer tries all addresses of a name in that time. Without, it waits minutes for the first one.
			DialContext:         (&net.Dialer{Timeout: p.timeout}).DialContext,
			DisableKeepAlives:   !p.keepAlive,
			MaxIdleConnsPerHost: p.concurrency,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: p.insecure}, //nolint:gosec // requested by --insecure
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()

	tallies := make([]tally, p.concurrency)
	var tickets atomic.Int64
	start := time.Now()
	var workers sync.WaitGroup
	for i := range tallies {
		workers.Go(func() {
			for {
				planned, ok := p.next(ctx, start, tickets.Add(1)-1)
				if !ok {
					return
				}
				tallies[i].add(p.request(client, planned))
			}
		})
	}
	workers.Wait()
	return p.report(tallies, time.Since(start))
}

// next waits for the planned start of request number n and returns it; false when
// there is none. With a rate, times are those of the plan even if all workers were
// busy then, so that a server that stalls cannot hide the requests it delayed. After
// the end, what was planned before is still sent, for one more timeout.
func (p loadPlan) next(ctx context.Context, start time.Time, n int64) (time.Time, bool) {
	end := start.Add(p.duration)
	if p.rate == 0 {
		now := time.Now()
		return now, ctx.Err() == nil && now.Before(end)
	}
	planned := start.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	if !planned.Before(end) || time.Now().After(end.Add(p.timeout)) {
		return planned, false
	}
	select {
	case <-ctx.Done():
		return planned, false
	case <-time.After(time.Until(planned)):
		return planned, true
	}
}

// outcome is the result of one request.
type outcome struct {
	latency   time.Duration // since the planned start
	status    int           // 0: no answer
	problem   string        // kind of error, if there was no whole answer
	responder *info         // if the answer was one of demo serve
}

func (p loadPlan) request(client *http.Client, planned time.Time) outcome {
	response, err := client.Get(p.url)
	if err != nil {
		return outcome{latency: time.Since(planned), problem: problem(err)}
	}
	defer response.Body.Close()
	head, err := io.ReadAll(io.LimitReader(response.Body, maxInfo))
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	done := outcome{latency: time.Since(planned), status: response.StatusCode}
	if err != nil {
		done.problem = problem(err)
		return done
	}
	var responder info
	if json.Unmarshal(head, &responder) == nil && responder.Pod != "" { // any other answer is fine too
		done.responder = &responder
	}
	return done
}

// problem sorts errors into few kinds, so that thousands of them stay readable.
func problem(err error) string {
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "name not resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no local port left"
	case errors.As(err, &certificate):
		return "certificate not trusted"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed early"
	default:
		return err.Error()
	}
}

// tally counts the outcomes of one worker; workers share nothing.
type tally struct {
	latencies               histogram.Histogram
	statuses, problems      map[string]int
	pods, nodes, clusters   map[string]int
	requests, ok, badStatus int
}

func (t *tally) add(o outcome) {
	t.requests++
	t.latencies.Add(o.latency)
	switch {
	case o.problem != "":
		count(&t.problems, o.problem)
	case o.status >= http.StatusOK && o.status < http.StatusBadRequest:
		t.ok++
	default:
		t.badStatus++
	}
	if o.status != 0 {
		count(&t.statuses, strconv.Itoa(o.status))
	}
	if o.responder != nil {
		count(&t.pods, o.responder.Pod)
		count(&t.nodes, o.responder.Node)
		count(&t.clusters, o.responder.Cluster)
	}
}

func count(counts *map[string]int, key string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	if key == "" {
		key = "(unnamed)"
	}
	(*counts)[key]++
}
