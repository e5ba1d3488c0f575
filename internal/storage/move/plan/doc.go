// SPDX-License-Identifier: Apache-2.0

// Package plan decides the next step of a move of a volume. It is PURE: facts in, one step out.
//
//	plan.go       facts, steps, and which phase is next
//	phases.go     the phases until the data is verified, each a function of the facts
//	ending.go     the switch to the target, and what is removed or brought back
//	pass.go       one pass of a pod that copies
//	check.go      what is refused before anything is made
//	objects.go    the objects of a move
//	copy.sh       what the two pods run
//
// The one law is that at any moment either the source is whole and is the claim's, or the target is verified and is the claim's. So the volume of the claim is
// taken away before the last differences are copied, and no step but switching makes it again with other data. Every step may be repeated, and a step that
// was interrupted is found in the facts, not remembered.
//
// It must not know how facts are read or steps are carried out. Its proof is crash_test.go of the package above: a move is interrupted at each of its writes.
package plan
