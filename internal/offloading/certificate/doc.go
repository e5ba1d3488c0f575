// SPDX-License-Identifier: Apache-2.0

// Package certificate approves or denies the serving certificates that virtual kubelets request.
//
// plan.go decides from values; controller.go carries the decisions out. It must not know how a virtual kubelet uses its certificate. Its tests, with a
// signer of their own, prove it against real API servers.
package certificate
