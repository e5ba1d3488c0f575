// SPDX-License-Identifier: Apache-2.0

// Package auth is how two clusters that know nothing of each other come to trust: the service that answers strangers,
// and the client that asks it.
//
//	GET  /ids                 who this cluster is, and which protocol versions it speaks
//	POST /identity            first contact: pre-shared token and public key  →  token of an hour, API server
//	POST /identity/challenge  something to sign, good once and for a minute
//	POST /identity/renewal    the challenge, signed with the pinned key       →  another token of an hour
//
// First contact pins the public key, for good: whoever learns the pre-shared token cannot take over another
// cluster's identity. A captured request is worth nothing: a renewal, and a first contact that is made
// again, are signed over a challenge of this very process, and a first contact cannot be made twice without one.
// A cluster makes one key for each provider, so that what it signs for one is void at any other.
//
// Lifetimes travel as durations, and each side computes with its own clock.
//
// The package must not know what a tenant consists of. It writes one kind of object, the ConfigMap with the pinned key, and
// waits there for the name of the tenant's namespace. It never logs, returns or keeps a token or a signature.
// TestServerAgainstAPIServer proves it with exactly the rights that the marks in identity.go ask for, TestNothingSecretIsLogged
// that logs are clean, and the Fuzz tests that no request can confuse the parsers.
package auth
