// SPDX-License-Identifier: Apache-2.0

// Package netem is the link emulator of the playground: it gives chosen traffic of a router a delay and a bandwidth, in user
// space, because the kernel's netem qdisc is not available everywhere.
//
// Its job: own the TUN device emu0, the routing table Table and the policy rules of one priority range in one network namespace; send
// the packets of every configured pair into the device (ip rule: iif INGRESS from SOURCE to DESTINATION lookup Table), hold them
// until they are due, write them back. They return with iif emu0, match no rule any more, and the main table delivers them:
//
//	br1 ──rule──▶ emu0 ──read──▶ line: bandwidth, delay ──write──▶ emu0 ──main table──▶ br2
//
// It must not know clusters, links or why a packet is held: package fault decides that. Loss and partitions are
// nftables rules made from the same plan; they see the packets before and after the emulator.
//
// The device asks the kernel for no offloads, so packets in the emulator have wire size; the price is a ceiling (2.6 Gbit/s
// of TCP on two cores). IPv4 only: packets of other protocols that reach the device are dropped and counted.
//
// When the process dies the device vanishes, its table becomes empty and traffic flows undelayed. The next start
// removes rules that were left behind. Reverse path filtering is switched off in the namespace, and stays off.
//
// schedule_test.go and rule_test.go prove the decisions; router_test.go proves the whole in real namespaces (as root).
package netem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/fault"
)

// Kernel objects that belong to this package, in the namespace where it runs.
const (
	Device        = "emu0"
	Table         = 100
	FirstPriority = 10000
	LastPriority  = 10999
	// protocol identifies our rules and our route in the output of `ip -d rule` and `ip route`.
	protocol = 211
)

// Run serves the control socket and emulates what is configured through it, until the context ends or the device fails.
// It starts with an empty configuration. The calling thread must be in the router's network namespace. On return rules, device
// and socket file are gone, and packets that were held have been delivered.
func Run(ctx context.Context, socket string) (err error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	// The device comes first: only one process can have it, so whatever else is found belongs to a dead one.
	device, err := openDevice()
	if err != nil {
		return err
	}
	rules := ruleTable{handle}
	if _, err := rules.set(nil); err != nil {
		return errors.Join(fmt.Errorf("remove rules of an earlier run: %w", err), device.Close())
	}
	if err := configureDevice(handle); err != nil {
		return errors.Join(err, device.Close())
	}
	listener, err := listen(socket)
	if err != nil {
		return errors.Join(err, device.Close())
	}
	emulator, err := newEmulator(device)
	if err != nil {
		return errors.Join(err, listener.Close(), device.Close())
	}
	control := &control{emulator: emulator, rules: rules}
	return serve(ctx, listener, control)
}

// serve runs the parts of the process and stops them in order: no new configuration, no new packets, no held packets, no device.
func serve(ctx context.Context, listener net.Listener, control *control) error {
	server := &http.Server{Handler: control.handler(), ReadHeaderTimeout: 5 * time.Second}
	emulator := control.emulator
	// Only the first failure is read; the buffer holds all, so that no sender blocks.
	failed := make(chan error, 3)
	var serving, receiving, sending sync.WaitGroup
	serving.Go(func() { failed <- server.Serve(listener) })
	receiving.Go(func() { failed <- emulator.receive() })
	sending.Go(func() { failed <- emulator.send() })

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-failed:
	}
	// A new context, since ctx may have ended. Shutdown waits for requests in progress, lest they configure after the clearing, and
	// removes the socket file.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	shut := server.Shutdown(last)
	serving.Wait()
	_, cleared := control.apply(fault.Emulation{})
	emulator.stop()
	sending.Wait()
	removed := emulator.device.Close()
	receiving.Wait()
	return errors.Join(failure, shut, cleared, removed, emulator.alarm.close())
}

// listen takes the socket path over from a dead process, never from a living one.
func listen(path string) (net.Listener, error) {
	conn, refused := net.DialTimeout("unix", path, time.Second)
	if refused == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("control socket %s: another emulator answers there; stop it first", path)
	}
	// A file that is no socket also refuses connections, and is not ours.
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == fs.ModeSocket && errors.Is(refused, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the control socket of a dead emulator: %w", err)
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), listener.Close())
	}
	return listener, nil
}
