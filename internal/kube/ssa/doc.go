// SPDX-License-Identifier: Apache-2.0

// Package ssa writes objects with forced server-side apply and skips every write that would change nothing.
// A repeated apply costs the API server a request even if nothing changes, and an idle cluster must send none.
//
// After a restart, an "atomic" structure (such as the fieldRef of an environment variable) is recognised only if the
// intent also spells out the defaults that the API server sets in it. Otherwise the intent is applied once more,
// which changes nothing.
//
// The package must not know any kind, and reads no object that its caller could not read. ssa_test.go proves it against
// a real API server, by counting requests.
package ssa
