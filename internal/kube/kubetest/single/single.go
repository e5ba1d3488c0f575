// SPDX-License-Identifier: Apache-2.0

// Package single is for tests that compute for long on one goroutine, in packages that otherwise are concurrent.
//
// The race detector makes such a test five to ten times as slow and cannot find anything in it. With [Goroutine] as its first line, the race detector leaves it
// out, and the stage of unit tests runs it: hack/check looks for that line in the source. It must not know what is tested. Its proof is single_test.go.
package single

import "testing"

// Goroutine skips the test under the race detector. It is the first line of the test.
func Goroutine(t testing.TB) {
	t.Helper()
	if detector {
		t.Skip("NOT RUN: one goroutine has no races; `make unit` and the unit stage of `make test` run it")
	}
}
