// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// verbosityVariable holds the log level: 0 logs changes of state, 1 also debugging information.
const verbosityVariable = "LIQO_LOG_LEVEL"

// logTo sends the logs of this program and of its libraries to out, one line per entry, and returns a context with the logger.
func logTo(out io.Writer) context.Context {
	level := slog.LevelInfo
	if os.Getenv(verbosityVariable) > "0" {
		level = slog.Level(-1)
	}
	logger := logr.FromSlogHandler(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	klog.SetLogger(logger)
	ctrllog.SetLogger(logger)
	return ctrllog.IntoContext(context.Background(), logger)
}
