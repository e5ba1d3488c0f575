// SPDX-License-Identifier: Apache-2.0

// Package ssa writes objects with forced server-side apply and leaves out every write that would change nothing.
// A repeated apply costs the API server a request even if nothing changes, and an idle cluster must see none.
//
// What is written as a whole (an "atomic" structure, such as the fieldRef of an environment variable) is recognised
// after a restart only if the intent spells out what the API server would fill in there; otherwise it is applied
// once more, which changes nothing.
//
// The package must not know any kind, and reads no object that its caller could not read. Its proof is ssa_test.go,
// against a real API server: it counts requests.
package ssa
