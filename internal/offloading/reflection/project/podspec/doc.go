// SPDX-License-Identifier: Apache-2.0

// Package podspec decides what of a pod the peer gets: its ShadowPod and the Secret with its tokens, what it lacks
// there and why, and what of a later change follows.
//
// It must not know clients, caches or clocks, nor what is known of the pod in the peer. Its tests are those of package project.
package podspec
