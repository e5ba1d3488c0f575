// SPDX-License-Identifier: Apache-2.0

package main

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
)

const (
	// maxSlow is the longest answer /api/slow gives; the server's write timeout is
	// longer, so that it never cuts one off.
	maxSlow         = 60 * time.Second
	writeTimeout    = maxSlow + 30*time.Second
	shutdownTimeout = 10 * time.Second
)

// listener is where and how a command serves: its flags.
type listener struct {
	address        string
	cert, key      string
	selfSigned     string
	drain          time.Duration
	certificateOut io.Writer // gets the CA of a self-signed certificate
}

func (l *listener) register(flags *flag.FlagSet, address string) {
	flags.StringVar(&l.address, "listen", address, "TCP `address` to serve on")
	flags.StringVar(&l.cert, "tls-cert", "", "PEM `file` of the certificate; with it, serve HTTPS")
	flags.StringVar(&l.key, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&l.selfSigned, "self-signed", "", "make a certificate for this DNS `name` in memory, print its CA as PEM, and serve HTTPS")
	flags.DurationVar(&l.drain, "drain", 3*time.Second, "after SIGTERM, fail /readyz but go on serving this long: "+
		"kube-proxy may still send for some seconds")
}

// tls returns the configuration the flags ask for, nil for plain HTTP.
func (l *listener) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case l.selfSigned != "" && (l.cert != "" || l.key != ""):
		return nil, fmt.Errorf("%w: --self-signed and --tls-cert exclude each other", errUsage)
	case (l.cert == "") != (l.key == ""):
		return nil, fmt.Errorf("%w: --tls-cert and --tls-key belong together", errUsage)
	case l.selfSigned != "":
		certificate, ca, err := selfSigned(l.selfSigned, time.Now())
		if err != nil {
			return nil, err
		}
		if _, err := l.certificateOut.Write(ca); err != nil {
			return nil, fmt.Errorf("print CA: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	case l.cert != "":
		certificate, err := tls.LoadX509KeyPair(l.cert, l.key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", l.cert, l.key, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	default:
		return nil, nil
	}
	return config, nil
}

// requireTLS is for servers that the API server calls: it speaks only HTTPS.
func (l *listener) requireTLS() error {
	if l.cert == "" && l.selfSigned == "" {
		return fmt.Errorf("%w: the API server speaks only HTTPS; give --tls-cert and --tls-key, or --self-signed", errUsage)
	}
	return nil
}

// run serves until ctx ends, then reports draining, goes on for the drain time, and
// lets running requests end.
func (l *listener) run(ctx context.Context, handler http.Handler, draining func()) error {
	config, err := l.tls()
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
	return l.serve(ctx, server, socket, draining)
}

func (l *listener) serve(ctx context.Context, server *http.Server, socket net.Listener, draining func()) error {
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
	case <-time.After(l.drain):
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return errors.Join(fmt.Errorf("requests still running after %s: %w", shutdownTimeout, err), server.Close())
	}
	return nil
}

// writeJSON answers with value. A failure after the status line cannot be reported
// to the client, which receives a broken answer.
func writeJSON(w http.ResponseWriter, status int, value any) {
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
