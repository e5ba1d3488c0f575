// SPDX-License-Identifier: Apache-2.0

// Package host brings the kernel of the current network namespace to a plan.HostState: links, addresses, neighbours, routes, rules,
// one nftables table and one WireGuard device. Each file is one kind of thing and does the same: observe, diff, act.
//
// It touches nothing of others. Ours are the links of our two names and what is on them, routes of our protocol number, rules with our
// priorities that lead to our table, and our nftables table; everything else stays, even in the same routing table. It decides nothing:
// it knows no peer, cluster or API. Whatever somebody else has taken away is made again by the next Apply, and applying twice changes nothing.
//
// The proof is its tests: two clusters of network namespaces with overlapping networks that reach each other, and one test per kind of damage.
package host
