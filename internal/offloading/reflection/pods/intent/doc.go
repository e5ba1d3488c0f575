// SPDX-License-Identifier: Apache-2.0

// Package intent compares the ShadowPod that a pod is to have with the one that the peer has: what of a change follows, and in which parts the peer may refuse it.
//
// It must not know when a ShadowPod is written, nor what a field means, which package podspec does. The tests of package reflection cover it.
package intent
