// SPDX-License-Identifier: Apache-2.0

// Package controllertest is an API server for the tests of the controllers of offloading: with their rights, and with what a test writes in place of
// Kubernetes, the virtual kubelet and the other cluster.
//
// Only tests may import it. It must not know a controller.
package controllertest
