// SPDX-License-Identifier: Apache-2.0

// Package podplan decides what happens to a pod on a virtual node, on the consumer's side: what to write to the peer, what to report here, and when
// the local pod may be removed. It is the counterpart of package shadow, which decides for the provider.
//
// It must not know a client, a cache, a queue, nor the clock: reflection collects the facts and executes the step. plan_test.go has a row per decision;
// history_test.go proves the laws against random histories, with the provider that package shadow plans on the other side.
package podplan
