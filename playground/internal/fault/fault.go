// SPDX-License-Identifier: Apache-2.0

// Package fault decides what the playground's router must do so that the links between clusters (and between a
// cluster and the host) misbehave as asked: cut, slow, lossy, narrow.
//
// It is pure: a State (which faults are wanted) and a Topology (where the clusters are attached) go in, a Plan
// (an nftables script and a configuration of the link emulator) comes out. It must not know how a plan is applied:
// no file, socket, clock or process. Package netem emulates what nftables cannot (delay and bandwidth).
// The golden tests in testdata prove the text; the tests of package netem prove that kernel and emulator obey it.
//
// What the faults mean, for one link between the sites A and B:
//   - partition: packets from A to B, from B to A, or both are dropped; also those of established connections and those
//     that the emulator already holds.
//   - allow: the link is closed but for named ports: packets to these ports from the sites that may open them, and packets from
//     these ports back, pass; all others are dropped, also those of established connections. Replies are known by their source
//     port alone, so nothing expires; a server can therefore send UDP from a named port before a client asks. TCP connections and
//     echo requests can only be opened in the allowed direction. ICMP errors pass only with `icmp`. Fragments of a packet
//     behind the first have no ports, and are dropped.
//   - delay: every packet is held for that time in each direction, as tc netem does: the round trip grows by twice
//     the delay. Jitter varies it evenly between delay-jitter and delay+jitter without reordering packets, so on a busy link, where
//     packets queue behind delayed ones, it tends to delay+jitter.
//   - loss: every packet is lost with that probability, in each direction independently: with loss p a request and its
//     answer both arrive with probability (1-p)². A link with delay or bandwidth loses packets of wire size. On a link with loss only,
//     a segmentation-offload burst (TCP sends up to 64 kB at once over veth devices) is one packet, and lost as one.
//   - bandwidth: an upper limit for each direction; packets that would wait longer than about 100 ms are dropped.
//
// Traffic inside one cluster is switched by its bridge, never routed, so no fault touches it.
package fault

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Host is the name of the site that stands for the machine itself.
const Host = "host"

// Link is the wanted behaviour of the link between two sites. The pair is unordered; A and B only give
// the directions a name. The zero value of every other field is "no such fault".
type Link struct {
	A string `json:"a"`
	B string `json:"b"`
	// DropAB cuts the direction from A to B, DropBA the other one; both together are a full partition.
	DropAB bool `json:"dropAB,omitzero"`
	DropBA bool `json:"dropBA,omitzero"`
	// AllowAB are the ports at B that A may open, AllowBA those at A that B may open. With any of them the link is closed for
	// everything else.
	AllowAB   []Port `json:"allowAB,omitempty"`
	AllowBA   []Port `json:"allowBA,omitempty"`
	Delay     Delay  `json:"delay,omitzero"`
	Loss      Loss   `json:"loss,omitzero"`
	Bandwidth Rate   `json:"bandwidth,omitzero"`
}

// Healthy reports whether the link has no fault at all.
func (l Link) Healthy() bool {
	return !l.DropAB && !l.DropBA && len(l.AllowAB)+len(l.AllowBA) == 0 && l.Delay == Delay{} && l.Loss == 0 && l.Bandwidth == 0
}

// String describes the link for a person: `milan <-> rome: partitioned, delay 50ms±5ms, loss 5%, bandwidth 100mbit`.
func (l Link) String() string {
	var faults []string
	switch {
	case l.DropAB && l.DropBA:
		faults = append(faults, "partitioned")
	case l.DropAB:
		faults = append(faults, fmt.Sprintf("partitioned from %s to %s", l.A, l.B))
	case l.DropBA:
		faults = append(faults, fmt.Sprintf("partitioned from %s to %s", l.B, l.A))
	}
	switch {
	case slices.Equal(l.AllowAB, l.AllowBA) && len(l.AllowAB) > 0:
		faults = append(faults, "closed but for "+list(l.AllowAB))
	case len(l.AllowAB) > 0:
		faults = append(faults, fmt.Sprintf("closed but for %s from %s to %s", list(l.AllowAB), l.A, l.B))
	case len(l.AllowBA) > 0:
		faults = append(faults, fmt.Sprintf("closed but for %s from %s to %s", list(l.AllowBA), l.B, l.A))
	}
	if l.Delay != (Delay{}) {
		faults = append(faults, "delay "+l.Delay.String())
	}
	if l.Loss != 0 {
		faults = append(faults, "loss "+l.Loss.String())
	}
	if l.Bandwidth != 0 {
		faults = append(faults, "bandwidth "+l.Bandwidth.String())
	}
	if len(faults) == 0 {
		faults = append(faults, "healthy")
	}
	return fmt.Sprintf("%s <-> %s: %s", l.A, l.B, strings.Join(faults, ", "))
}

// State is the list of all links that have a fault. Its operations return a new State and keep the old one as it is;
// what they make is in canonical order: A before B in every link, links sorted, no healthy links. The operations do not judge
// names and values, NewPlan and Topology.Check do: plan first, store the state when the plan is accepted.
type State struct {
	Links []Link `json:"links"`
}

// Partition cuts the link between two sites; with oneWay only the direction from a to b. Cuts add up until Heal.
func (s State) Partition(a, b string, oneWay bool) State {
	return s.change(a, b, func(l *Link) {
		if !oneWay || l.A == a {
			l.DropAB = true
		}
		if !oneWay || l.A == b {
			l.DropBA = true
		}
	})
}

// Allow closes the link between two sites for everything but flows to the given ports of either site; with oneWay, to those of b.
// It replaces what an earlier call allowed.
func (s State) Allow(a, b string, ports []Port, oneWay bool) State {
	return s.change(a, b, func(l *Link) {
		l.AllowAB, l.AllowBA = nil, nil
		if !oneWay || l.A == a {
			l.AllowAB = canonical(ports)
		}
		if !oneWay || l.A == b {
			l.AllowBA = canonical(ports)
		}
	})
}

// Heal ends the partition of a link, and opens it if it is closed but for ports, in both directions. Its other faults stay.
func (s State) Heal(a, b string) State {
	return s.change(a, b, func(l *Link) { l.DropAB, l.DropBA, l.AllowAB, l.AllowBA = false, false, nil, nil })
}

// SetDelay sets the one-way delay of both directions; the zero Delay removes it.
func (s State) SetDelay(a, b string, delay Delay) State {
	return s.change(a, b, func(l *Link) { l.Delay = delay })
}

// SetLoss sets the packet loss of both directions; 0 removes it.
func (s State) SetLoss(a, b string, loss Loss) State {
	return s.change(a, b, func(l *Link) { l.Loss = loss })
}

// SetBandwidth sets the limit of each direction; 0 removes it.
func (s State) SetBandwidth(a, b string, rate Rate) State {
	return s.change(a, b, func(l *Link) { l.Bandwidth = rate })
}

// Clear removes all faults of the links that join all the given sites: of every link without a name, of every link of a
// site with one name (a cluster that goes away must be cleared, else the state names an unknown site), of one link with two.
func (s State) Clear(sites ...string) State {
	return State{Links: slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool {
		return !slices.ContainsFunc(sites, func(site string) bool { return site != l.A && site != l.B })
	})}
}

// Link returns the link between two sites; it is Healthy when the state does not list it.
func (s State) Link(a, b string) Link {
	if b < a {
		a, b = b, a
	}
	for _, l := range s.Links {
		if l.A == a && l.B == b {
			return l
		}
	}
	return Link{A: a, B: b}
}

func (s State) change(a, b string, set func(*Link)) State {
	link := s.Link(a, b)
	set(&link)
	links := slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool { return l.A == link.A && l.B == link.B })
	if !link.Healthy() {
		links = append(links, link)
	}
	slices.SortFunc(links, func(x, y Link) int {
		return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B))
	})
	return State{Links: links}
}
