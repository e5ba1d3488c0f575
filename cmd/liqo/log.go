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

// verbosityVariable holds the log level: 0 says what changed, 1 is for debugging.
const verbosityVariable = "LIQO_LOG_LEVEL"

// logTo sends the logs of this program and of the libraries it uses to one place, one line each.
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
