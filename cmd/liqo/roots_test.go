// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// TestRoots: the program trusts public certificate authorities in an image without files.
func TestRoots(t *testing.T) {
	const inside = "LIQO_TEST_ROOTS"
	if os.Getenv(inside) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestRoots$")
		child.Env = []string{inside + "=1", "SSL_CERT_FILE=" + t.TempDir() + "/none", "SSL_CERT_DIR=" + t.TempDir()}
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		t.Errorf("no certificate authority is trusted: %v", err)
	}
}
