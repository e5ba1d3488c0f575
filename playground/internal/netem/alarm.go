// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a sleep that another goroutine can end. Timers of the Go runtime are late by up to a millisecond
// when the process is otherwise idle (it waits in epoll, which counts milliseconds); this one is exact to some tens of microseconds.
type alarm struct {
	fd int // eventfd
}

func newAlarm() (*alarm, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	return &alarm{fd: fd}, nil
}

// ring ends the current wait, or else the next one.
func (a *alarm) ring() {
	// The only possible error is a counter that overflows, which rings as well.
	_, _ = unix.Write(a.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// close frees the alarm. No goroutine may use it afterwards.
func (a *alarm) close() error { return unix.Close(a.fd) }

// wait returns after the given time or a ring; sometimes earlier.
func (a *alarm) wait(d time.Duration) error {
	var timeout *unix.Timespec
	if d != never {
		t := unix.NsecToTimespec(d.Nanoseconds())
		timeout = &t
	}
	fds := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}
	n, err := unix.Ppoll(fds, timeout, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for packets: %w", err)
	}
	if n > 0 {
		var counter [8]byte
		_, _ = unix.Read(a.fd, counter[:]) // resets it; cannot block
	}
	return nil
}
