// SPDX-License-Identifier: Apache-2.0

// Package storage decides how pods come to their data: it provisions the volumes of claims of our virtual storage classes, on the node that the
// scheduler has selected.
//
//	volume.go       PURE: the real claim behind a claim, and the volume that represents it
//	locality.go     PURE: where a volume can be used
//	request.go      PURE: which claims are refused, and which class is asked of a provider
//	source.go       PURE: with whose data a claim starts
//	provisioner.go  carries out what those decide, for the library that most provisioners use
//	clone.go        reads the source of a claim, and whether its class can copy it
//	growth.go       has real claims grow with the claims of users
//
// For a node of this cluster, a real claim in the storage namespace holds the data, and the volume is a copy of the real one. For a virtual node,
// the volume is a record that pins the claim to the node; the virtual kubelet makes the claim in the provider, and deletes it.
//
// A claim of the user that is deleted releases its volume; nothing else deletes data. See docs/adr/0019-data-stays.md.
//
// The package must not know how the provider is reached, nor how pods are offloaded. Its proof are the tables of its pure files, and
// provisioner_test.go against a real API server with exactly the rights of its markers.
package storage
