// SPDX-License-Identifier: Apache-2.0

// Package lifecycle decides when the pod of a ShadowPod is created, deleted and released, and when it has ended: at most one lives, and a finished pod
// never runs again.
//
// It decides from values; package shadow makes the pod, package shadowpod carries the steps out. Its tests run histories of both clusters.
package lifecycle
