// SPDX-License-Identifier: Apache-2.0

// Package refusals records what an API server forbids to a client.
//
// It must not know what the client is for. Its proof is refusals_test.go.
package refusals

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"liqo.io/liqo/internal/kube/kubetest"
)

// Log records the requests that an API server forbids. A request that is authorized when it is repeated is none of them: the authorizer observes new
// rights some milliseconds after they are written, and callers retry. What anything but the authorizer refuses, such as a policy, stays.
type Log struct {
	mu  sync.Mutex
	all map[refused]string // messages
}

type refused struct{ client, request string }

// RoundTripper records the refusals among the responses of next.
func (r *Log) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return kubetest.RoundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return response, err
		}
		client := request.Header.Get("Impersonate-User") + request.Header.Get("Authorization")
		return response, r.observe(refused{client, request.Method + " " + request.URL.Path}, response)
	})
}

func (r *Log) observe(what refused, response *http.Response) error {
	if response.StatusCode == http.StatusForbidden {
		message, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return fmt.Errorf("read why a request is forbidden: %w", err)
		}
		response.Body = io.NopCloser(bytes.NewReader(message))
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.all == nil {
			r.all = map[refused]string{}
		}
		r.all[what] = string(message)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if response.StatusCode < http.StatusMultipleChoices && strings.Contains(r.all[what], `" cannot `) { // the words of the authorizer
		delete(r.all, what)
	}
	return nil
}

// All returns the refused requests, with the messages of the API server.
func (r *Log) All() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, message := range r.all {
		all = append(all, what.request+": "+message)
	}
	slices.Sort(all)
	return all
}

// Forget drops the refusals so far.
func (r *Log) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.all)
}
