// SPDX-License-Identifier: Apache-2.0

// Package session runs work against an API server that comes and goes.
//
// A session starts when /readyz answers ok and ends when a request fails without a response.
// Each session reads everything anew, so that no caller has to decide what is stale after an
// outage, and none waits for the backoff of a watch, which grows to half a minute. Detecting
// the loss costs no request: the package observes the requests and watches of the work.
//
// The package must not know what the work is. session_test.go proves it with a server
// that is closed and opened again.
package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// ErrAway is the cause of a session context that ended because a request met no API server.
var ErrAway = errors.New("the API server does not answer")

// Options name the API server and limit the requests to it.
type Options struct {
	Kubeconfig string
	UserAgent  string
	QPS        float32
	Burst      int
	// Probe is the interval between two probes of /readyz while the API is away. After a
	// minute without answer it is ten times as long.
	Probe time.Duration
	// Away is called once per outage of the API with its error. May be nil.
	Away func(error)
}

// Work runs in a session. Its context ends with ErrAway as cause when the API server is lost;
// Work must then return, and Run calls it again in the next session. A nil return while the
// API answers ends Run.
type Work func(ctx context.Context, config *rest.Config) error

// Run calls work in one session after the other until it returns nil while the API answers, or
// until ctx ends. It then returns the cause of ctx, whatever work returned.
func Run(ctx context.Context, options Options, work Work) error {
	logger := klog.FromContext(ctx)
	for ctx.Err() == nil {
		config, err := ready(ctx, options)
		if err != nil {
			break // only ctx ends the wait
		}
		bounded, cancel := context.WithCancelCause(ctx)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &lossDetector{next, cancel} })
		err = work(bounded, config)
		lost := errors.Is(context.Cause(bounded), ErrAway)
		cancel(nil)
		switch {
		case ctx.Err() != nil:
		case lost:
			logger.Info("API server lost")
			if options.Away != nil {
				options.Away(ErrAway)
			}
		case err == nil:
			return nil
		default:
			logger.Error(err, "session ended, a new one starts")
			pause(ctx, time.Second)
		}
	}
	return context.Cause(ctx)
}

// Config reads a kubeconfig file with the settings of options.
func Config(options Options) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", options.Kubeconfig, err)
	}
	config.UserAgent, config.QPS, config.Burst = options.UserAgent, options.QPS, options.Burst
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return config, nil
}

// ready returns the configuration once the API server is ready. Its only error is that of ctx.
// It reads the file at each try: the file may not exist yet, or be replaced.
func ready(ctx context.Context, options Options) (*rest.Config, error) {
	logger := klog.FromContext(ctx)
	start, last := time.Now(), ""
	for {
		config, err := Config(options)
		if err == nil {
			if err = Probe(ctx, config); err == nil {
				logger.Info("API server ready", "waited", time.Since(start).Round(time.Millisecond))
				return config, nil
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if last == "" && options.Away != nil {
			options.Away(err)
		}
		if text := err.Error(); text != last {
			logger.Info("waiting for the API server", "seen", text)
			last = text
		}
		interval := options.Probe
		if time.Since(start) > time.Minute {
			interval *= 10
		}
		pause(ctx, interval)
	}
}

// Probe requests /readyz once, for at most two seconds; nil means ready.
func Probe(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("credentials for %s: %w", config.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("server address %q: %w", config.Host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	target := (&url.URL{Scheme: base.Scheme, Host: base.Host, Path: "/readyz"}).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // allows reuse of the connection
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", target, response.Status)
	}
	return nil
}

// lossDetector ends the session at the first request without a response. A response of any
// kind, even an error, proves that the server is there.
type lossDetector struct {
	next http.RoundTripper
	away context.CancelCauseFunc
}

func (w *lossDetector) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if err != nil && request.Context().Err() == nil {
		w.away(ErrAway)
	}
	return response, err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
