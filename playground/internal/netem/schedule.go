// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"time"

	"liqo.io/liqo/playground/internal/fault"
)

const (
	// bufferTime and bufferBytes bound the packets that wait for transmission on a limited line, as the buffer of a router does: as much
	// as the line sends in bufferTime, but on slow lines enough for the first burst of a TCP connection.
	bufferTime  = 100 * time.Millisecond
	bufferBytes = 24000
	// maxHeld (bytes of memory) bounds the packets that travel on one line: 190 ms of 1 Gbit/s in packets of 1500 bytes (buffers hold 2048).
	maxHeld = 32 << 20
)

// schedule decides when the packets of one line depart. Instants are durations since any fixed start.
type schedule struct {
	idle time.Duration // when the line has transmitted everything that was admitted
	last time.Duration // departure of the packet admitted last
}

// admit returns when a packet of the given size (bytes) that arrives now departs, or false when it finds the buffer full. random is in [0,1).
//
// A packet is transmitted after the one before it, which takes size/bandwidth, and then travels for the delay. Jitter never
// makes a packet overtake: one with a short delay waits for the one before it.
func (s *schedule) admit(p fault.Pair, now time.Duration, size int, random float64) (departure time.Duration, ok bool) {
	transmitted := now
	if p.Bandwidth != 0 {
		transmitted = max(now, s.idle)
		if transmitted-now > max(bufferTime, transmission(bufferBytes, p.Bandwidth)) {
			return 0, false
		}
		transmitted += transmission(size, p.Bandwidth)
		s.idle = transmitted
	}
	delay := p.Delay.Mean + time.Duration((2*random-1)*float64(p.Delay.Jitter))
	s.last = max(s.last, transmitted+delay)
	return s.last, true
}

func transmission(bytes int, rate fault.Rate) time.Duration {
	return time.Duration(uint64(bytes) * 8 * uint64(time.Second) / uint64(rate))
}
