// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"time"

	"liqo.io/liqo/playground/internal/fault"
)

// packet is an IP packet that waits for its departure.
type packet struct {
	departure time.Duration
	data      []byte
}

// line holds the packets of one pair, in the order of arrival, which is the order of departure.
type line struct {
	pair     fault.Pair
	schedule schedule
	packets  []packet
	first    int  // index of the oldest packet; those before it are gone
	held     int  // memory of the packets, bytes
	retired  bool // no longer configured: takes no packets, delivers the ones it has at once
	counters Counters
}

// Counters of one pair since it was configured.
type Counters struct {
	Packets uint64 `json:"packets"` // delivered
	Bytes   uint64 `json:"bytes"`   // delivered
	Drops   uint64 `json:"drops"`   // packets that found the buffer full
	Queue   int    `json:"queue"`   // packets held now
}

// change gives the line other values, which also hold for the packets on it: none departs later than the latest departure of a
// packet that arrives now. So a slow line that becomes fast is fast at once.
func (l *line) change(p fault.Pair, now time.Duration) {
	l.pair = p
	latest := now + p.Delay.Mean + p.Delay.Jitter
	for i := l.first; i < len(l.packets); i++ {
		l.packets[i].departure = min(l.packets[i].departure, latest)
	}
	l.schedule.idle = min(l.schedule.idle, now)
	l.schedule.last = min(l.schedule.last, latest)
}

func (l *line) push(p packet) {
	if l.first > len(l.packets)/2 {
		n := copy(l.packets, l.packets[l.first:])
		clear(l.packets[n:])
		l.packets, l.first = l.packets[:n], 0
	}
	l.packets = append(l.packets, p)
	l.held += cap(p.data)
	l.counters.Queue++
}

// pop returns the oldest packet if it is due.
func (l *line) pop(now time.Duration) ([]byte, bool) {
	if l.next() > now {
		return nil, false
	}
	data := l.packets[l.first].data
	l.packets[l.first].data = nil
	l.first++
	l.held -= cap(data)
	l.counters.Queue--
	l.counters.Packets++
	l.counters.Bytes += uint64(len(data))
	if l.first == len(l.packets) {
		l.first, l.packets = 0, l.packets[:0]
		if cap(l.packets) > 4096 {
			l.packets = nil // give the memory of a burst back
		}
	}
	return data, true
}

// next is the departure of the oldest packet, or never.
func (l *line) next() time.Duration {
	switch {
	case l.first == len(l.packets):
		return never
	case l.retired:
		return 0
	}
	return l.packets[l.first].departure
}
