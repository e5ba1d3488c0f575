// SPDX-License-Identifier: Apache-2.0

package main

// The image holds this program and nothing else, so it brings the public certificate authorities along: those of a provider
// whose authentication service has a public certificate (insecureSkipTLSVerify: false), or whose API server has
// (apiServer.trustedCA: true). Authorities found in /etc/ssl/certs, say from a volume, come first.
import _ "golang.org/x/crypto/x509roots/fallback"
