// SPDX-License-Identifier: Apache-2.0

// Package quantities finds amounts, such as 250m or 1e-2000000000, that an API server of someone else may send and that take hours and gigabytes to parse.
// The parser of Kubernetes has no bound, so what arrives is checked before it is decoded: [CheckJSON] for JSON, [Wire] for protocol buffers.
package quantities
