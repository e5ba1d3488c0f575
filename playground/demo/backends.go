// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// backends asks other demo services for their identity, so that one page shows calls that
// cross clusters.
type backends struct {
	urls   []string
	client *http.Client
}

// backendAnswer is the result of a request to one of them.
type backendAnswer struct {
	URL          string  `json:"url"`
	Info         *info   `json:"info,omitempty"`
	Error        string  `json:"error,omitempty"`
	Milliseconds float64 `json:"milliseconds"`
}

const (
	backendTimeout = 2 * time.Second
	maxInfo        = 64 << 10 // most of an answer that is read as info
)

func newBackends(urls []string) backends {
	return backends{urls: urls, client: &http.Client{
		Timeout: backendTimeout,
		// One connection per call: the service's load balancing then shows.
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

// ask asks all at the same time and returns the answers in the order of the URLs.
func (b backends) ask(ctx context.Context) []backendAnswer {
	answers := make([]backendAnswer, len(b.urls))
	var all sync.WaitGroup
	for i, url := range b.urls {
		all.Go(func() {
			start := time.Now()
			responder, err := b.askOne(ctx, url)
			answers[i] = backendAnswer{URL: url, Info: responder, Milliseconds: milliseconds(time.Since(start))}
			if err != nil {
				answers[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	return answers
}

func (b backends) askOne(ctx context.Context, base string) (*info, error) {
	target, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if target.Path == "" || target.Path == "/" {
		target.Path = "/api/info"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", target, response.Status)
	}
	var responder info
	if err := json.NewDecoder(io.LimitReader(response.Body, maxInfo)).Decode(&responder); err != nil {
		return nil, fmt.Errorf("%s does not answer like demo serve: %w", target, err)
	}
	return &responder, nil
}

// milliseconds is d with microseconds after the point.
func milliseconds(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }
