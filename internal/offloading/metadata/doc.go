// SPDX-License-Identifier: Apache-2.0

// Package metadata lists which labels, annotations and tolerations the pods of a peer may have: components of a cluster take orders from them.
//
// It decides from values. Its tests prove it.
package metadata
