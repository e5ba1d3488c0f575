// SPDX-License-Identifier: Apache-2.0

// Package auth establishes trust between two clusters: a service for unauthenticated clients, and its client.
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
// The package must not know what a tenant consists of. It writes one kind of object, the ConfigMap with the pinned key,
// and waits there for the name of the tenant's namespace. It never logs, returns or stores a token or a signature.
// The proofs are TestServerAgainstAPIServer, with exactly the rights of the markers in identity.go,
// TestNothingSecretIsLogged, and fuzz tests of the parsers.
package auth
