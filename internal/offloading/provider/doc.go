// SPDX-License-Identifier: Apache-2.0

// Package provider is a cluster that grants a virtual node to this cluster, as a value: what is known about it, and which namespaces have a remote
// namespace there.
//
//	provider.go   what is known, and what it has been asked for
//	choice.go     whether a namespace goes there, and where its pods run
//	slice.go      which ResourceSlice of a provider counts
//
// It decides from values; package providers reads them. It must not know how namespaces get there. Its tests prove it.
package provider
