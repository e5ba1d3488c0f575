// SPDX-License-Identifier: Apache-2.0

// Package remotenamespace creates and deletes, as a provider, the namespaces that consumers request, with their rights and bounds there.
//
//	plan.go                    what a consumer may have, from values
//	controller.go, ending.go   wiring, and what happens to each namespace, to its end
//	rights.go, isolation.go    what bounds the consumer: roles, quotas, limits, network policies
//	data.go                    namespaces that are kept because they hold claims
//
// The consumer is hostile: its map is not trusted. It must not know how the map got here. It is proved by its tests against real API servers.
package remotenamespace
