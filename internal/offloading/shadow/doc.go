// SPDX-License-Identifier: Apache-2.0

// Package shadow decides, in the provider, what becomes of a peer's wishes: plan.go whether a ShadowPod's pod is made, and when never
// again; pod.go and amend.go what it looks like; rules.go and baseline.go what a peer may ask for; ledger.go how much; slice.go which endpoints
// are believed.
//
// Everything in it is pure. It must not know how wishes travel, nor who asks: the controllers and the webhook do. A peer writes
// its wishes with its own hands, so nothing in them is taken for granted. Its proof are the tables beside each file, and
// plan_test.go, which plays random histories against a small API server of its own.
package shadow
