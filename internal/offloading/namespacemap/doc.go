// SPDX-License-Identifier: Apache-2.0

// Package namespacemap lists, for each provider, all namespaces offloaded to it, in one NamespaceMap, of which it is the only writer.
//
// plan.go decides from values; controller.go carries it out. It must not know how maps reach the provider. Its tests, and those of package
// namespaceoffloading, prove it against real API servers.
package namespacemap
