// SPDX-License-Identifier: Apache-2.0

package fanin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// refusalGrace is for how long a refused list or watch is no error. Rights in a namespace are granted after it is created, and are gone before it is:
// Kubernetes deletes bindings and pods in any order, and a pod has its grace period to end.
const refusalGrace = 2 * time.Minute

// refusal remembers since when the API server refuses lists and watches of a namespace.
type refusal struct {
	since atomic.Int64 // Unix nanoseconds; 0: it does not
}

// young reports whether an error is a refusal that is young.
func (r *refusal) young(err error, now time.Time) bool {
	if !apierrors.IsForbidden(err) {
		return false
	}
	r.since.CompareAndSwap(0, now.UnixNano())
	return now.UnixNano()-r.since.Load() < int64(refusalGrace)
}

// end records that lists and watches work.
func (r *refusal) end() { r.since.Store(0) }

// quietly returns a context with a logger that logs no young refusal as an error. The reflector reports all its failures there, and nowhere else.
func (r *refusal) quietly(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	if logger.GetSink() == nil {
		return ctx
	}
	return klog.NewContext(ctx, logger.WithSink(quietSink{logger.GetSink(), r}))
}

// quietSink logs young refusals for debugging.
type quietSink struct {
	logr.LogSink
	refusal *refusal
}

// debugging is the level of messages for debugging.
const debugging = 1

func (s quietSink) Error(err error, message string, keysAndValues ...any) {
	switch {
	case !s.refusal.young(err, time.Now()):
		s.LogSink.Error(err, message, keysAndValues...)
	case s.Enabled(debugging):
		s.LogSink.Info(debugging, message, append(keysAndValues, "err", err)...)
	}
}

func (s quietSink) WithValues(keysAndValues ...any) logr.LogSink {
	return quietSink{s.LogSink.WithValues(keysAndValues...), s.refusal}
}

func (s quietSink) WithName(name string) logr.LogSink {
	return quietSink{s.LogSink.WithName(name), s.refusal}
}

func (s quietSink) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return quietSink{deep.WithCallDepth(depth), s.refusal}
	}
	return s
}
