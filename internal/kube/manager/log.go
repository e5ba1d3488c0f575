// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The formats of logs.
const (
	LogText = "text"
	LogJSON = "json"
)

// NewLogger returns a logger that writes lines up to the verbosity: 0 for what changed, 1 for debugging.
func NewLogger(w io.Writer, format string, verbosity int) (logr.Logger, error) {
	// A verbosity of logr is a negative level of slog.
	options := &slog.HandlerOptions{Level: slog.Level(-verbosity)}
	switch format {
	case LogText:
		return logr.FromSlogHandler(slog.NewTextHandler(w, options)), nil
	case LogJSON:
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options)), nil
	}
	return logr.Logger{}, fmt.Errorf("log format %q is not known, use %s or %s", format, LogText, LogJSON)
}

// SetLogger makes the libraries log there, too. Call it once, before New.
func SetLogger(logger logr.Logger) {
	log.SetLogger(logger)
	klog.SetLogger(logger)
}
