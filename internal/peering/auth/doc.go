// SPDX-License-Identifier: Apache-2.0

// Package auth is the protocol by which two clusters establish trust: a service for unauthenticated clients, and its client.
//
//	GET  /ids                 identity of this cluster, and its protocol versions
//	POST /identity            first contact: pre-shared token and public key  →  token for an hour, API server
//	POST /identity/challenge  a value to sign, valid once and for a minute
//	POST /identity/renewal    the challenge, signed with the pinned key       →  another token for an hour
//
// First contact pins the public key permanently, so that knowing the pre-shared token does not suffice to take over the
// identity of another cluster. A captured request is worthless: renewals, and repeated first contacts, are signed over a
// challenge of this process. A consumer has a different key for each provider, so that a signature for one provider is
// invalid for any other.
//
// Lifetimes are transmitted as durations, so that the clocks of the clusters need not agree.
//
// This package is what both sides know: messages, checks, errors and proofs, and the objects in which the service and the controller manager of a provider
// agree on peers. Package server is the service, package client calls it. The parsers have fuzz tests.
package auth
