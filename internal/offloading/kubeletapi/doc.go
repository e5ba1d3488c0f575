// SPDX-License-Identifier: Apache-2.0

// Package kubeletapi is the port of a virtual kubelet: the HTTPS API of a kubelet. streams.go forwards logs, exec, attach and port-forward to the
// provider's API server (streampath.go translates the path), metrics.go and summary.go fetch the metrics of the pods from there.
//
// It must not know the node, nor who wrote the identity. It is proved by streams_test.go, against real API servers, with only the rights of its role: from
// kubectl to a kubelet in the other cluster.
package kubeletapi
