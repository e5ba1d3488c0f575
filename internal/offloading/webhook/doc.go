// SPDX-License-Identifier: Apache-2.0

// Package webhook answers the API server's questions about what offloading writes. shadowpod.go says what a peer may wish for, quota.go
// how much of it.
//
// It must not know how objects travel. The rules themselves are in package shadow, which the controllers ask, too. Its proof is
// shadowpod_test.go, a table of what hostile peers try, and quota_test.go, with many that ask at once.
package webhook
