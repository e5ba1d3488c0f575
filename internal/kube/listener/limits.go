// SPDX-License-Identifier: Apache-2.0

// Package listener makes every TCP listener and every HTTP server of the product, with bounds that no client can use up for the others: a connection too
// many ends the oldest one of the network that has the most, and clients that have proven who they are keep places of their own.
//
// It must not know what is served, nor how a client proves itself. Its proof is TestPlaces, TestHeaders and TestKept; TestAttackNH1 in cmd/liqo plays the
// attack on each port of the chart, and TestListeners at the top of the repository finds what is opened elsewhere.
package listener

import "time"

// Limits bound what clients of one port use. Zero values mean the defaults.
type Limits struct {
	// All is the number of connections whose clients have proven nothing, Each that of one network among them: an IPv4 address, or a /64. By default,
	// 64 and all of them. One more ends the oldest of the network with too many, or else with the most, and never waits.
	All, Each int
	// Kept is the number of connections whose clients have proven who they are, and KeptEach that of one client among them, all by default. They never
	// end for others. A client for which there is no place among them has one among the others.
	Kept, KeptEach int
	// Header is the most bytes of the headers of a request, by default 8 KiB in at most [lines]. HeaderKept is that of a client that has proven who it
	// is before its first request; by default the same.
	Header, HeaderKept int
	// Held is the most bytes of all headers that have not arrived in full, by default 1 MiB. More end the oldest of the network that holds the most.
	Held int
	// Requests is the number of requests on one connection; 0 for any.
	Requests int
	// Arrive is how long a handshake may take, and then the headers of a request; 10 s by default, since a
	// busy machine needs seconds, and one that is late ends when others come. Idle is the time between two requests, 30 s by default.
	Arrive, Idle time.Duration
	// Read and Write are how long a request and its answer may take as a whole; 0 for as long as they like, as streams do.
	Read, Write time.Duration
}

const (
	// lines is the most lines of headers: a line takes up much more memory than it has bytes. Honest clients send about ten.
	lines = 128
	// hello is the most bytes of a handshake, with a chain of certificates.
	hello = 32 << 10
)

// Small are the limits of a port that answers short requests of a few programs: metrics, probes, reports.
func Small() Limits {
	return Limits{All: 64, Each: 16, Write: 30 * time.Second, Read: 10 * time.Second}
}

func (l Limits) complete() Limits {
	set(&l.All, 64)
	set(&l.Each, l.All)
	set(&l.KeptEach, l.Kept)
	set(&l.Header, 8<<10)
	set(&l.HeaderKept, l.Header)
	set(&l.Held, 1<<20)
	set(&l.Arrive, 10*time.Second)
	set(&l.Idle, 30*time.Second)
	return l
}

func set[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
