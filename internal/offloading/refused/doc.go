// SPDX-License-Identifier: Apache-2.0

// Package refused decides when a write that a rule of this cluster refuses is tried again, and reports each refusal once.
//
// It must not know what is written. Its tests prove it.
package refused
