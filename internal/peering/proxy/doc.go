// SPDX-License-Identifier: Apache-2.0

// Package proxy is the role proxy: an HTTP CONNECT proxy with two destinations, through which the peers of an in-band peering reach the API server and
// the authentication service of this cluster. It knows nothing of Kubernetes, and reads nothing from an API server.
//
// Its clients are hostile. proxy_test.go plays them over real sockets, and a fuzz test covers what they send first.
package proxy
