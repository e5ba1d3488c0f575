// SPDX-License-Identifier: Apache-2.0

// Package host brings the kernel of the current network namespace to a hoststate.State: links, addresses, neighbours, routes, rules,
// one nftables table and one WireGuard device. Each file handles one kind of object in the same way: observe, diff, act.
//
// It changes only our own objects: the links of our two names with their addresses and neighbours, routes of our protocol number, rules with
// our priorities that select our table, and our nftables table. Everything else stays, even in the same routing table. The package decides
// nothing: it knows no peer, cluster or API. The next Apply restores what another program has deleted, and applying twice changes nothing.
//
// Its proof is its tests: two clusters of network namespaces with overlapping networks that reach each other, and one test per kind of damage.
package host
