// SPDX-License-Identifier: Apache-2.0

// Package move carries out moves of volumes between clusters: for each VolumeMove it reads the facts, asks package plan for the next step, and does it.
//
//	controller.go  the loop
//	watch.go       which changes a move waits for
//	facts.go       reads what package plan decides from
//	apply.go       carries out a step
//	keys.go        the keys of the two pods of a move
//
// Changes wake it by the caches of the manager. It reads from the API server, not from a cache: a stale fact about a volume or a pod could cost data, and moves
// are rare.
//
// It must not decide. Its proof are TestMoves and TestKilled, which interrupt a move after each of its writes.
package move
