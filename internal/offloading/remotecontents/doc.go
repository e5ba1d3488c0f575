// SPDX-License-Identifier: Apache-2.0

// Package remotecontents answers, in the status of a NamespaceOffloading, what the remote namespaces hold, for commands that give them up.
//
// It counts with package contents. Without a request it reads and writes nothing. Its tests prove it.
package remotecontents
