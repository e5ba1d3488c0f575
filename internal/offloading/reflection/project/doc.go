// SPDX-License-Identifier: Apache-2.0

// Package project decides what of a local object the peer gets, and what of a remote pod's status is shown here, for pods, Services and what has to do with them: one
// function per direction. Kinds that are copied without a look at others are in package kinds. The result depends only on the arguments, so the same object always gives the same intent.
//
// An intent for the peer is an apply configuration with every field that we own; nil means that the peer must not have the object. A status that
// comes back was written by a cluster that we do not trust: it is bounded, and never makes a local pod something that its spec is not.
//
// The package must not know clients, caches or clocks, nor when it is called. Its tests are fields_test.go, which states what becomes of every field of
// every kind and fails on fields that Kubernetes adds; the golden files in testdata; accepted_test.go, which sends the results to a real API server; and
// the fuzz tests of both directions.
package project
