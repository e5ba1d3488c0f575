// SPDX-License-Identifier: Apache-2.0

package main

// The image holds only this program, so the program contains the public certificate authorities. They are needed for a provider whose
// authentication service has a public certificate (insecureSkipTLSVerify: false), or whose API server has one (apiServer.trustedCA:
// true). Authorities in /etc/ssl/certs, for example from a volume, take precedence.
import _ "golang.org/x/crypto/x509roots/fallback"
