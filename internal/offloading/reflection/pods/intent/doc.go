// SPDX-License-Identifier: Apache-2.0

// Package intent compares the ShadowPod that a pod is to have with the one that the peer has: what of a change
// follows, and in which parts the peer may refuse it.
//
// It must not know when a ShadowPod is written, nor what a field means, which package podspec does. Its proof is intent_test.go.
package intent
