// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// callTimeout is the deadline of a call, and of the first line of the response of a stream.
	callTimeout = 10 * time.Second
	// mostBody bounds the response to a call: the other side decides its length, and we read it completely into memory.
	mostBody = 16 << 20
)

// transport adds the current token and a deadline to each request.
type transport struct {
	next  http.RoundTripper
	token *atomic.Pointer[string]
	// endless: every response is a stream.
	endless bool
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
	streams := t.endless || stream(request) || response.StatusCode == http.StatusSwitchingProtocols
	if streams {
		timer.Stop()
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response, nil // its body is the connection, which the caller also writes to
	}
	left := int64(mostBody)
	if streams {
		left = math.MaxInt64
	}
	response.Body = &body{ReadCloser: response.Body, left: left, done: func() { timer.Stop(); cancel(nil) }}
	return response, nil
}

// stream reports whether the response lasts as long as the client listens.
func stream(request *http.Request) bool {
	query := request.URL.Query()
	return truth(query.Get("watch")) || truth(query.Get("follow"))
}

func truth(text string) bool { return text == "true" || text == "1" }

type body struct {
	io.ReadCloser
	left int64
	done func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", mostBody)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
