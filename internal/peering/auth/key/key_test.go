// SPDX-License-Identifier: Apache-2.0

package key

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"testing"
)

// TestDerive: one key for each root and provider, the same in every version of this program.
func TestDerive(t *testing.T) {
	root := bytes.Repeat([]byte{7}, RootSize)
	derive := func(root []byte, provider string) string {
		t.Helper()
		key, err := Derive(root, provider)
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(key.Public().(ed25519.PublicKey))
	}
	const want = "4bdee94c0cd2e210f37cf282f82a8b549ece452afa2d1ce884ba8ea891a37530"
	if have := derive(root, "milan-id"); have != want {
		t.Errorf("public key %s, want %s: with another key, all providers would refuse this cluster", have, want)
	}
	if derive(root, "naples-id") == want || derive(bytes.Repeat([]byte{8}, RootSize), "milan-id") == want {
		t.Error("two keys are the same")
	}
	if _, err := Derive(root[1:], "milan-id"); err == nil {
		t.Error("a root that is too short was accepted")
	}
}
