// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// callTimeout is the deadline of a call, and of the first line of a stream's answer.
const callTimeout = 10 * time.Second

// transport adds the current token and a deadline to each request.
type transport struct {
	next  http.RoundTripper
	token *atomic.Pointer[string]
}

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	timer := time.AfterFunc(callTimeout, func() {
		cancel(fmt.Errorf("no answer within %s: %w", callTimeout, context.DeadlineExceeded))
	})
	request = request.Clone(ctx)
	request.Header.Set("Authorization", "Bearer "+*t.token.Load())
	response, err := t.next.RoundTrip(request)
	if err != nil {
		timer.Stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	if stream(request) || response.StatusCode == http.StatusSwitchingProtocols {
		timer.Stop()
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response, nil // its body is the connection, which its user wants to write to
	}
	response.Body = &body{ReadCloser: response.Body, done: func() { timer.Stop(); cancel(nil) }}
	return response, nil
}

// stream tells requests whose answer goes on for as long as somebody listens.
func stream(request *http.Request) bool {
	query := request.URL.Query()
	return truth(query.Get("watch")) || truth(query.Get("follow"))
}

func truth(text string) bool { return text == "true" || text == "1" }

type body struct {
	io.ReadCloser
	done func()
}

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go look through.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
