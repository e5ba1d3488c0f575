// SPDX-License-Identifier: Apache-2.0

// Package networks returns which networks are this cluster's and which are a peer's: what pods of peers may reach, and where endpoints of peers may lie.
//
// networks.go decides from values; read.go reads nodes, and passes the events that change an answer. It must not know what is done with the
// networks. networks_test.go proves it, and the tests of the controllers that ask.
package networks
