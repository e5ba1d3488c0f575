// SPDX-License-Identifier: Apache-2.0

// Package loop repeats a step until it succeeds, each time that something may have changed.
//
// It must not know what the step does. The tests of its users prove it.
package loop

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// Converge calls step at each kick and, while step fails, after a growing backoff. It logs an
// error when its text changes, not at every try.
func Converge(ctx context.Context, kick <-chan struct{}, name string, step func(context.Context) error) {
	const shortest, longest = 100 * time.Millisecond, 10 * time.Second
	logger := klog.FromContext(ctx)
	wait, last := shortest, ""
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-retry:
		}
		err := step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if last != "" {
				logger.Info("recovered", "part", name)
			}
			wait, last, retry = shortest, "", nil
			continue
		}
		if text := err.Error(); text != last {
			logger.Error(err, "will try again", "part", name)
			last = text
		}
		retry = time.After(wait)
		wait = min(2*wait, longest)
	}
}

// Bell is a channel that coalesces notifications: it holds at most one, however often it rings.
type Bell chan struct{}

func NewBell() Bell { return make(Bell, 1) }

func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
