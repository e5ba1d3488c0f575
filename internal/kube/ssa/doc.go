// SPDX-License-Identifier: Apache-2.0

// Package ssa writes objects with forced server-side apply and leaves out every write that would change nothing.
// A repeated apply costs the API server a request even if nothing changes, and an idle cluster must see none.
//
// It must not know any kind, and reads no object that its caller could not read. Its proof is ssa_test.go, against a real API server:
// it counts requests.
package ssa
