// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// An image without files knows public certificate authorities all the same.
func TestRoots(t *testing.T) {
	const inside = "LIQO_TEST_ROOTS"
	if os.Getenv(inside) == "" {
		again := exec.Command(os.Args[0], "-test.run=^TestRoots$")
		again.Env = []string{inside + "=1", "SSL_CERT_FILE=" + t.TempDir() + "/none", "SSL_CERT_DIR=" + t.TempDir()}
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		t.Errorf("no certificate authority is known: %v", err)
	}
}
