// SPDX-License-Identifier: Apache-2.0

// Package reflection copies the objects of offloaded namespaces to their remote namespaces in one peer, and brings the status of the pods back.
//
//	NamespaceMap ──► mappings ──► informers of a local namespace and of its remote namespace, while they are mapped    engine
//	local object, metadata of its copy ──► project (pure) ──► ssa: one apply, or none                                  objects
//	local pod ──► ShadowPod; remote pod ──► local status                                                               pods, podplan (pure)
//	tokens of local service accounts ──► Secrets that the remote pods mount                                            tokens
//	remote warnings, and what the peer refuses ──► events about local objects                                          events, refusals
//
// This package puts the loops together and is what others use of them. Imports point from objects, pods and tokens to engine, and from there to events.
//
// An object counts as absent only while its namespace is being watched, and every deletion in the peer names the UID. A local pod is removed
// once nothing runs for it in the peer. Stopping a mapping or the process deletes nothing.
//
// The package does not know how a peer is found, how its connection is kept, how an address is translated, or what a field means: cmd and the
// package project do. Its tests run against two real API servers with exactly the rights of the roles, and count the requests.
package reflection
