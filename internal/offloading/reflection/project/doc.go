// SPDX-License-Identifier: Apache-2.0

// Package project decides what of a local object the peer gets, for Services and what has to do with them, and has what every projection needs: names, metadata and the
// bounds of what a peer writes. Pods are in podspec and podstatus; kinds that are copied without a look at others are in package kinds. The result depends only on the
// arguments, so the same object always gives the same intent.
//
// An intent for the peer is an apply configuration with every field that we own; nil means that the peer must not have the object.
//
// The package must not know clients, caches or clocks, nor when it is called. Its tests are those of all projections: fields_test.go, which states what becomes of every
// field of every kind and fails on fields that Kubernetes adds; the golden files in testdata; accepted_test.go, which sends the results to a real API server; and
// the fuzz tests of both directions.
package project
