// SPDX-License-Identifier: Apache-2.0

// Package shadowtest is the API server of a provider, with the controllers of ShadowPods and ShadowEndpointSlices, for their tests.
//
// Only tests may import it.
package shadowtest
