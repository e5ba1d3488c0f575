// SPDX-License-Identifier: Apache-2.0

// Package shadow decides, in the provider, what the pod of a peer's ShadowPod is: pod.go and amend.go what it looks like and how it changes; rules.go and
// baseline.go what a peer may request. How much a peer may request, package quota counts.
//
// The package is pure. It must not know how objects reach the provider, nor who calls it: the controllers and the webhook do. Peers write
// these objects directly, so nothing in them is trusted. It is proved by the tables beside each file.
package shadow
