// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// pathFile is the file beside the certificate with the secret segment of the paths of all webhooks.
const pathFile = "path"

// leastSegment is the least length of the secret segment. With letters and digits, it then has more than 128 bits.
const leastSegment = 24

// webhooks is a server of webhooks whose paths cannot be guessed. API servers have no client certificate by default, so a webhook cannot
// authenticate its caller, and every pod can connect to its port. Only a client that may read the webhook configurations, or the Secret with
// the certificate, knows the secret segment. The server answers 404 to all other clients.
type webhooks struct {
	webhook.Server
	// file has the segment. It is read for each request, so a new segment needs no restart, like a new certificate.
	file string
}

// newWebhooks returns a server with the certificate and the secret segment in the directory.
func newWebhooks(port int, dir string) (webhook.Server, error) {
	w := &webhooks{file: filepath.Join(dir, pathFile), Server: webhook.NewServer(webhook.Options{
		Port: port, CertDir: dir,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.MinVersion = tls.VersionTLS12 }},
	})}
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
		hook.ServeHTTP(writer, request)
	}))
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
