// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"
)

// rereadInterval is how old a certificate from files may be when a connection uses it.
const rereadInterval = 10 * time.Second

// Files is a certificate from two files, which may be replaced at any time. It reads them when a connection needs them, so nothing runs in
// between. controller-runtime's certwatcher needs an inotify instance, of which users of a node have 128, and fails where none is left.
type Files struct {
	certPath, keyPath string

	mu      sync.Mutex
	current *tls.Certificate
	read    time.Time
}

// FromFiles returns the certificate of the files, or an error if they hold none now.
func FromFiles(certPath, keyPath string) (*Files, error) {
	f := &Files{certPath: certPath, keyPath: keyPath}
	_, err := f.Get(nil)
	return f, err
}

// Get is for tls.Config.GetCertificate. Two files are not replaced at one instant: as long as they do not fit together, it returns the last
// certificate that did.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil && time.Since(f.read) < rereadInterval {
		return f.current, nil
	}
	f.read = time.Now()
	certificate, err := tls.LoadX509KeyPair(f.certPath, f.keyPath)
	switch {
	case err == nil:
		f.current = &certificate
	case f.current == nil:
		return nil, fmt.Errorf("read the TLS certificate: %w", err)
	}
	return f.current, nil
}
