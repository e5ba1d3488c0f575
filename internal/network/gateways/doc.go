// SPDX-License-Identifier: Apache-2.0

// Package gateways follows the gateway pods of this cluster: one connection each, over which the gateway reports its peers. It has the cache of what belongs to
// gateways: their pods, Services, keys and the reports of nodes.
//
// It must not know what follows from a report: the controllers that ask do. The proof is gateways_test.go.
package gateways
