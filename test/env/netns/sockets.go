// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Listen listens at a TCP address of the place, in this process.
func (p Place) Listen(ctx context.Context, address string) (listener net.Listener, err error) {
	err = p.within(func() error {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		return err
	})
	return listener, err
}

// Dial connects from the place, in this process. The host of the address must be an IP address: names would be resolved elsewhere.
func (p Place) Dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = p.within(func() error {
		connection, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// file is the file of the network namespace.
func (p Place) file() string {
	if at := slices.Index(p.enter, "--target"); at >= 0 {
		return "/proc/" + p.enter[at+1] + "/ns/net"
	}
	return strings.TrimPrefix(p.enter[0], "--net=")
}

// within runs a function in the network namespace of the place. Sockets that it creates stay there.
func (p Place) within(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine, and no other one gets into the namespace
		done <- func() error {
			namespace, err := os.Open(p.file())
			if err != nil {
				return err
			}
			defer namespace.Close()
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the network of %s: %w", p.Name, err)
			}
			return do()
		}()
	}()
	return <-done
}
