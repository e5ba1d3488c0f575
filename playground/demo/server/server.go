// SPDX-License-Identifier: Apache-2.0

// Package server is the listener of the demo's servers, with or without TLS. It must not know what they answer. Proof:
// server_test.go of the demo.
package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"liqo.io/liqo/playground/demo/command"
)

const (
	// MaxSlow is the longest answer /api/slow gives; the server's write timeout is
	// longer, so that it never cuts one off.
	MaxSlow         = 60 * time.Second
	writeTimeout    = MaxSlow + 30*time.Second
	shutdownTimeout = 10 * time.Second
)

// Listener is where and how a command serves: its flags.
type Listener struct {
	address        string
	Cert, Key      string
	SelfSigned     string
	Drain          time.Duration
	CertificateOut io.Writer // gets the CA of a self-signed certificate
}

func (l *Listener) Register(flags *flag.FlagSet, address string) {
	flags.StringVar(&l.address, "listen", address, "TCP `address` to serve on")
	flags.StringVar(&l.Cert, "tls-cert", "", "PEM `file` of the certificate; with it, serve HTTPS")
	flags.StringVar(&l.Key, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&l.SelfSigned, "self-signed", "", "make a certificate for this DNS `name` in memory, print its CA as PEM, and serve HTTPS")
	flags.DurationVar(&l.Drain, "drain", 3*time.Second, "after SIGTERM, fail /readyz but go on serving this long: "+
		"kube-proxy may still send for some seconds")
}

// TLS returns the configuration the flags ask for, nil for plain HTTP.
func (l *Listener) TLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case l.SelfSigned != "" && (l.Cert != "" || l.Key != ""):
		return nil, fmt.Errorf("%w: --self-signed and --tls-cert exclude each other", command.ErrUsage)
	case (l.Cert == "") != (l.Key == ""):
		return nil, fmt.Errorf("%w: --tls-cert and --tls-key belong together", command.ErrUsage)
	case l.SelfSigned != "":
		certificate, ca, err := SelfSigned(l.SelfSigned, time.Now())
		if err != nil {
			return nil, err
		}
		if _, err := l.CertificateOut.Write(ca); err != nil {
			return nil, fmt.Errorf("print CA: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	case l.Cert != "":
		certificate, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", l.Cert, l.Key, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	default:
		return nil, nil
	}
	return config, nil
}

// RequireTLS is for servers that the API server calls: it speaks only HTTPS.
func (l *Listener) RequireTLS() error {
	if l.Cert == "" && l.SelfSigned == "" {
		return fmt.Errorf("%w: the API server speaks only HTTPS; give --tls-cert and --tls-key, or --self-signed", command.ErrUsage)
	}
	return nil
}

// Run serves until ctx ends, then reports draining, goes on for the drain time, and
// lets running requests end.
func (l *Listener) Run(ctx context.Context, handler http.Handler, draining func()) error {
	config, err := l.TLS()
	if err != nil {
		return err
	}
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("serve on %s: %w", l.address, err)
	}
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    64 << 10,
	}
	return l.Serve(ctx, server, socket, draining)
}

func (l *Listener) Serve(ctx context.Context, server *http.Server, socket net.Listener, draining func()) error {
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig == nil {
			failed <- server.Serve(socket)
			return
		}
		failed <- server.ServeTLS(socket, "", "") // the certificate is in TLSConfig
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", socket.Addr(), err)
	case <-ctx.Done():
	}
	draining()
	// Clients that keep connections open must reconnect through the load balancer.
	server.SetKeepAlivesEnabled(false)
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", socket.Addr(), err)
	case <-time.After(l.Drain):
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return errors.Join(fmt.Errorf("requests still running after %s: %w", shutdownTimeout, err), server.Close())
	}
	return nil
}

// WriteJSON answers with value. A failure after the status line cannot be reported
// to the client, which receives a broken answer.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		http.Error(w, fmt.Sprintf("encode %T: %v", value, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) //nolint:errcheck // see above
}
