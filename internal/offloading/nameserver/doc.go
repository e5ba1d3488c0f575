// SPDX-License-Identifier: Apache-2.0

// Package nameserver is the DNS of pods that run for other clusters (ADR 41). It knows for which peer an address asks, asks the DNS of this cluster for the
// names that package names decides, and bounds what each address uses.
//
// It must not decide what a name means. TestServe proves it with the resolver of Go, and TestAttackDNS with floods, addresses of no pod, and what is
// no message.
package nameserver
