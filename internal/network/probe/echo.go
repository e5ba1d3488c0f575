// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"net/netip"
	"time"
)

// echoRate and echoBurst bound the answers to one source, per second and at once. They are several times what a node of a large peer
// sends. maxSources bounds how many sources the limiter remembers.
const (
	echoRate   = 200
	echoBurst  = 200
	maxSources = 8192
)

// limiter allows each source echoRate packets a second.
type limiter struct {
	sources map[netip.Addr]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

func (l *limiter) allow(source netip.Addr, now time.Time) bool {
	b, known := l.sources[source]
	if !known {
		if len(l.sources) >= maxSources {
			l.forget(now)
		}
		if len(l.sources) >= maxSources {
			return false
		}
		if l.sources == nil {
			l.sources = map[netip.Addr]bucket{}
		}
		b = bucket{left: echoBurst, at: now}
	}
	b.left = min(echoBurst, b.left+now.Sub(b.at).Seconds()*echoRate)
	b.at = now
	allowed := b.left >= 1
	if allowed {
		b.left--
	}
	l.sources[source] = b
	return allowed
}

// forget drops the sources whose bucket is full again, because a new entry would be equal.
func (l *limiter) forget(now time.Time) {
	for source, b := range l.sources {
		if b.left+now.Sub(b.at).Seconds()*echoRate >= echoBurst {
			delete(l.sources, source)
		}
	}
}
