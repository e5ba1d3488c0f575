// SPDX-License-Identifier: Apache-2.0

// Package reflection brings what is in offloaded namespaces to their twins in one peer, and the news of pods back.
//
//	NamespaceMap ──► pairs ──► informers of a namespace here and of its twin there, for as long as the pair stands
//	local object, remote metadata ──► project (pure) ──► ssa: one apply, or none        catalog.go, reflector.go
//	local pod ──► ShadowPod                        its own workers                      pod.go, podforth.go, tokens.go
//	remote pod, remote warnings ──► local status, local events    its own workers       podback.go, events.go
//
// Absence is believed only of what is watched at that moment; every deletion over there names the UID. A pod here is removed
// when nothing runs for it there any more. Nothing is deleted because a pair or the process stops.
//
// It must not know how a peer is found or its connection kept, what an address is translated with, or what a field means: cmd and package
// project do. Its proof are the tests here, against two real API servers with the rights of the roles and no others; they count requests.
package reflection
