// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"liqo.io/liqo/internal/kube/ratelimit"
)

// Share bounds what one peer uses of a destination that itself bounds what one address uses of it. There, the address of this proxy stands for all
// peers, so without a share one of them could use up what is meant for all.
type Share struct {
	// Each is the number of connections of one peer, All that of all peers. If there are more, the oldest connection ends of the peer that has too
	// many, or else the most: a peer that holds connections open loses its own, and the others always get one.
	Each, All int
	// A peer may open Burst connections at once, and then one more after each Pause.
	Burst int
	Pause time.Duration
}

// AuthShare is that of the authentication service, which ends the oldest connection of the address with the most, serves 8 requests on each, and of the most
// expensive kind 5 in a second and 100 at once. An honest peer opens a connection for each renewal, and while it gets no answer, one after 1, 2, 4,
// 8, 16 and 30 s.
func AuthShare() *Share { return &Share{Each: 4, All: 48, Burst: 8, Pause: 5 * time.Second} }

// maxPaced bounds how many peers have a pace of their own; they are known by their passes.
const maxPaced = 4096

// sharing are the connections to one destination with a share.
type sharing struct {
	share Share
	pace  *ratelimit.Limiter[string]

	mu   sync.Mutex
	open []*shared // oldest first
}

type shared struct {
	peer   string
	client net.Conn
}

// newSharing returns nil, which bounds nothing, for a destination without a share.
func newSharing(s *Share) *sharing {
	if s == nil {
		return nil
	}
	return &sharing{share: *s, pace: ratelimit.New[string](rate.Every(s.Pause), s.Burst, maxPaced)}
}

// enter counts a connection of a peer until leave is called, and may end another one. It reports false if the peer opens connections too often.
func (s *sharing) enter(peer string, client net.Conn, now time.Time) (leave func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	if !s.pace.Allow(peer, now) {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &shared{peer, client}
	s.open = append(s.open, mine)
	if out := s.excess(); out >= 0 {
		_ = s.open[out].client.Close() // its goroutine ends
		s.open = slices.Delete(s.open, out, out+1)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = slices.DeleteFunc(s.open, func(one *shared) bool { return one == mine })
	}, true
}

// excess returns which connection has to end, -1 for none. An honest peer needs its connection for a moment only, so it loses none.
func (s *sharing) excess() int {
	return ratelimit.Excess(s.open, func(one *shared) string { return one.peer }, s.share.All, s.share.Each)
}
