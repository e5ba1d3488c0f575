// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"liqo.io/liqo/internal/kube/listener"
)

// pathFile is the file beside the certificate with the secret segment of the paths of all webhooks.
const pathFile = "path"

// leastSegment is the least length of the secret segment. With letters and digits, it then has more than 128 bits.
const leastSegment = 24

// webhookLimits have places for an API server that opens a connection for each of hundreds of requests at once. When it has asked at the right path, its
// connection has a place that no one else can take.
func webhookLimits() listener.Limits {
	return listener.Limits{All: 1024, Kept: 2048, Idle: 90 * time.Second}
}

// webhooksEnd is how long requests may take to finish when the process ends.
const webhooksEnd = 15 * time.Second

// webhooks is a server of webhooks whose paths cannot be guessed. API servers have no client certificate by default, so a webhook cannot
// authenticate its caller, and every pod can connect to its port. Only a client that may read the webhook configurations, or the Secret with
// the certificate, knows the secret segment. The server answers 404 to all other clients.
type webhooks struct {
	webhook.Server // registers webhooks and counts their requests; it serves nothing
	mux            *http.ServeMux
	port           int
	dir            string
	listens        atomic.Bool
	// file has the segment. It is read for each request, so a new segment needs no restart, like a new certificate.
	file string
}

// newWebhooks returns a server with the certificate and the secret segment in the directory.
func newWebhooks(port int, dir string) (webhook.Server, error) {
	mux := http.NewServeMux()
	w := &webhooks{
		Server: webhook.NewServer(webhook.Options{Port: port, WebhookMux: mux}),
		mux:    mux, port: port, dir: dir, file: filepath.Join(dir, pathFile),
	}
	_, err := w.segment()
	return w, err
}

// Register serves a webhook at its path behind the secret segment. Logs and metrics show a placeholder in its place.
func (w *webhooks) Register(path string, hook http.Handler) {
	w.Server.Register("/{segment}"+path, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		want, err := w.segment()
		if err != nil || subtle.ConstantTimeCompare(want, []byte(request.PathValue("segment"))) != 1 {
			http.NotFound(writer, request)
			return
		}
		listener.Keep(request.Context(), "API server")
		hook.ServeHTTP(writer, request)
	}))
}

func (w *webhooks) Start(ctx context.Context) error {
	certificate, err := certwatcher.New(filepath.Join(w.dir, "tls.crt"), filepath.Join(w.dir, "tls.key"))
	if err != nil {
		return fmt.Errorf("read the certificate of the webhooks: %w", err)
	}
	server, err := listener.Listen(ctx, net.JoinHostPort("", strconv.Itoa(w.port)), listener.Port{
		Limits: webhookLimits(), Handler: w.mux, Log: log.FromContext(ctx),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate},
	})
	if err != nil {
		return fmt.Errorf("port of the webhooks: %w", err)
	}
	w.listens.Store(true)
	go func() {
		if err := certificate.Start(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "a new certificate of the webhooks is used after a restart only")
		}
	}()
	return server.Drain(ctx, func() {}, webhooksEnd)
}

// StartedChecker returns a check whether the server has started.
func (w *webhooks) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !w.listens.Load() {
			return errors.New("the server of the webhooks has not started yet")
		}
		return nil
	}
}

func (w *webhooks) segment() ([]byte, error) {
	text, err := os.ReadFile(w.file)
	if err != nil {
		return nil, fmt.Errorf("read the secret part of the paths of webhooks: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) < leastSegment {
		return nil, errors.New("the secret part of the paths of webhooks in " + w.file + " is too short: delete the Secret liqo-webhook-certs and upgrade Liqo")
	}
	return text, nil
}
