// SPDX-License-Identifier: Apache-2.0

// Package shadow decides, in the provider, what happens to the ShadowPods and ShadowEndpointSlices of a peer: plan.go when the pod of a
// ShadowPod is created, and when never again; pod.go and amend.go what the pod looks like; rules.go and baseline.go what a peer may request;
// slice.go which endpoints are accepted. How much a peer may request, package quota counts.
//
// The package is pure. It must not know how objects reach the provider, nor who calls it: the controllers and the webhook do. Peers write
// these objects directly, so nothing in them is trusted. It is proved by the tables beside each file, and by plan_test.go, which runs
// random histories against a small API server of its own.
package shadow
