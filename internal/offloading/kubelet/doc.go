// SPDX-License-Identifier: Apache-2.0

// Package kubelet holds what the virtual kubelet of a provider consists of: its Deployment, its account and its rights, and the names that the chart and
// the controllers agree on.
//
// It decides from values and writes nothing. It must not know when a virtual kubelet is wanted. Golden files in testdata prove it.
package kubelet
