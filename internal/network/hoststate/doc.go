// SPDX-License-Identifier: Apache-2.0

// Package hoststate is what a host should look like, as a value with a text form: links, addresses, neighbours, routes, rules, packet filter and
// WireGuard. The plan makes it, and the package host applies it.
//
// It must not know why a host looks so, and decides nothing. The proof are the golden tests of the plan, which read its text.
package hoststate
