// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// The files of a TLS connection, with the names that a Secret of type kubernetes.io/tls has.
const caFile, certFile, keyFile = "ca.crt", "tls.crt", "tls.key"

// ErrUnproven is wrapped by the error of a call if what answers did not prove that it is the plugin.
var ErrUnproven = errors.New("no proof that this is the resource plugin")

// proven are the credentials of connections over TLS to a plugin whose authority is in a folder. It reads the folder for each connection, so that a
// replaced Secret needs no restart.
type proven struct {
	credentials.TransportCredentials
	dir string
	// failed is whether the last handshake has, of all clones.
	failed *atomic.Bool
}

// newProven returns the credentials of a folder, or why it cannot work.
func newProven(dir string) (*proven, error) {
	config, err := tlsConfig(dir)
	if err != nil {
		return nil, err
	}
	return &proven{TransportCredentials: credentials.NewTLS(config), dir: dir, failed: new(atomic.Bool)}, nil
}

// tlsConfig reads the folder: the authority, and the certificate that this cluster shows, if there is one.
func tlsConfig(dir string) (*tls.Config, error) {
	text, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return nil, fmt.Errorf("read the authority of the resource plugin: %w; put the certificates that sign the plugin's into %s, in PEM", err, caFile)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate; put the certificates that sign the plugin's into it, in PEM", filepath.Join(dir, caFile))
	}
	_, noCertificate := os.Stat(filepath.Join(dir, certFile))
	_, noKey := os.Stat(filepath.Join(dir, keyFile))
	if errors.Is(noCertificate, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist) {
		return config, nil
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf(
			"read what this cluster shows to the resource plugin: %w; put a certificate and its key into %s and %s, in PEM, or leave out both", err,
			certFile, keyFile,
		)
	}
	config.Certificates = []tls.Certificate{own}
	return config, nil
}

// ClientHandshake replaces that of the embedded credentials.
func (p *proven) ClientHandshake(ctx context.Context, authority string, connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := tlsConfig(p.dir)
	if err != nil {
		return nil, nil, err
	}
	secure, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, connection)
	p.failed.Store(err != nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; %s", err, remedy(err))
	}
	return secure, info, nil
}

// remedy is what to try after a handshake has failed.
func remedy(err error) string {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return caFile + " must hold the certificate that signs the plugin's"
	case errors.As(err, &other):
		return "the plugin's certificate must be for the host in the plugin's address"
	case errors.As(err, &invalid):
		return "renew the plugin's certificate, and compare the clocks"
	case errors.As(err, &plain):
		return "the plugin serves without TLS: give it a certificate, or set no Secret for it"
	}
	return "see the log of the plugin: it may ask for a certificate, " + certFile + " and " + keyFile
}

// Clone replaces that of the embedded credentials, which would forget the folder.
func (p *proven) Clone() credentials.TransportCredentials {
	return &proven{TransportCredentials: p.TransportCredentials.Clone(), dir: p.dir, failed: p.failed}
}
