// SPDX-License-Identifier: Apache-2.0

package events

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Debounce is how long changes are collected before one notification, because they come in groups.
const Debounce = 50 * time.Millisecond

// Watch notifies of changes, without naming them.
type Watch struct {
	Changed chan struct{}
	sockets []*nl.NetlinkSocket
	// ours are the indexes of our links. Neighbours come and go on all links of a node; only those on our links count.
	ours    atomic.Pointer[map[int]string]
	pending atomic.Bool
	closing atomic.Bool
	done    sync.WaitGroup
}

func New() (*Watch, error) {
	w := &Watch{Changed: make(chan struct{}, 1)}
	for protocol, groups := range map[int][]uint{
		unix.NETLINK_ROUTE: {
			unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
		},
		unix.NETLINK_NETFILTER: {unix.NFNLGRP_NFTABLES},
	} {
		socket, err := nl.Subscribe(protocol, groups...)
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("subscribe to kernel events: %w", err)
		}
		w.sockets = append(w.sockets, socket)
		w.done.Go(func() { w.listen(socket) })
	}
	return w, nil
}

func (w *Watch) listen(socket *nl.NetlinkSocket) {
	for {
		messages, _, err := socket.Receive()
		switch {
		case w.closing.Load():
			return
		case err != nil || slices.ContainsFunc(messages, w.matters): // most errors mean that the buffer was too small for the events
			w.notify()
		}
	}
}

// notify fills the channel after debounce.
func (w *Watch) notify() {
	if !w.pending.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(Debounce, func() {
		w.pending.Store(false)
		select {
		case w.Changed <- struct{}{}:
		default:
		}
	})
}

func (w *Watch) matters(message syscall.NetlinkMessage) bool {
	if message.Header.Type != unix.RTM_NEWNEIGH && message.Header.Type != unix.RTM_DELNEIGH {
		return true
	}
	const indexAt = 4 // of struct ndmsg
	ours := w.ours.Load()
	if ours == nil || len(message.Data) < indexAt+4 {
		return false
	}
	_, ok := (*ours)[int(binary.NativeEndian.Uint32(message.Data[indexAt:]))]
	return ok
}

// Follow sets which links are ours.
func (w *Watch) Follow(links map[int]string) { w.ours.Store(&links) }

func (w *Watch) Close() {
	w.closing.Store(true)
	for _, socket := range w.sockets {
		socket.Close()
	}
	w.done.Wait()
}
