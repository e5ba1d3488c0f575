// SPDX-License-Identifier: Apache-2.0

// Package peers returns which peer a remote namespace was created for, and whether the peer may create pods here. It also sends peers events about what
// they wrote.
//
// It trusts only what no peer can write. It must not know what the peer wants there. The tests of packages shadowpod and shadowslice prove it.
package peers
