// SPDX-License-Identifier: Apache-2.0

// Package project is what every projection of a local object needs: the two clusters and namespaces, names, metadata, and the bounds of what a peer writes.
// What the peer gets of an object is in package kinds, of a pod in podspec, and what comes back of a pod in podstatus. A result depends only on the arguments,
// so the same object always gives the same intent.
//
// An intent for the peer is an apply configuration with every field that we own; nil means that the peer must not have the object.
//
// The package must not know clients, caches or clocks, nor when it is called. Its tests are those of all projections: fields_test.go, which states what becomes
// of every field of every kind and fails on fields that Kubernetes adds; the golden files in testdata; accepted_test.go, which sends the results to a real API
// server; and the fuzz tests of both directions.
package project
