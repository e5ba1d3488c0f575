// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	tunPath = "/dev/net/tun"
	// deviceMTU is above that of every link: the kernel judges the size of a packet when it leaves the
	// emulator, against the MTU of the real link, and answers with the right ICMP message.
	deviceMTU = 9000
	// deviceQueue (packets) takes bursts between two reads: the kernel cuts a 64 kB packet of veth into 45 at once.
	deviceQueue = 10000
)

// openDevice creates emu0 in the namespace of the calling thread. Reads and writes are one IP packet each; Close ends a pending read
// and removes the device.
func openDevice() (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s (needs root and a kernel with TUN): %w", tunPath, err)
	}
	request, err := unix.NewIfreq(Device)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		if errors.Is(err, unix.EBUSY) {
			err = fmt.Errorf("%w: another emulator runs in this network namespace; stop it first", err)
		}
		return nil, errors.Join(fmt.Errorf("create device %s: %w", Device, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), tunPath), nil
}

// configureDevice brings emu0 up and makes it the only way out of Table.
func configureDevice(handle *netlink.Handle) error {
	link, err := handle.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("find device %s: %w", Device, err)
	}
	if err := setSysctls(); err != nil {
		return err
	}
	if err := handle.LinkSetMTU(link, deviceMTU); err != nil {
		return fmt.Errorf("set MTU of %s to %d: %w", Device, deviceMTU, err)
	}
	if err := handle.LinkSetTxQLen(link, deviceQueue); err != nil {
		return fmt.Errorf("set queue of %s to %d: %w", Device, deviceQueue, err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", Device, err)
	}
	everything := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Table: Table, Scope: netlink.SCOPE_LINK, Protocol: protocol}
	if err := handle.RouteReplace(route); err != nil {
		return fmt.Errorf("add default route through %s to table %d: %w", Device, Table, err)
	}
	return nil
}

// setSysctls writes the settings that emulation needs in the namespace of the calling thread.
func setSysctls() error {
	const root = "/proc/sys/net/"
	// For the kernel, the emulator makes paths asymmetric: a packet that returns from emu0 has a source that is reached through
	// another interface, and an undelayed answer arrives on an interface to which no route leads. So filtering by reverse path is off, on
	// every interface (the strictest of `all` and the own value counts) and, through `default`, on those that are made later.
	filters, err := filepath.Glob(root + "ipv4/conf/*/rp_filter")
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, path := range filters {
		if err := setSysctl(path, "0"); err != nil {
			return err
		}
	}
	// Nothing but the pairs' packets shall enter the device, and it needs no link-local address.
	return setSysctl(root+"ipv6/conf/"+Device+"/disable_ipv6", "1")
}

func setSysctl(path, value string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without IPv6, or an interface that has just gone
	}
	if err != nil {
		return fmt.Errorf("read sysctl: %w", err)
	}
	if strings.TrimSpace(string(old)) == value {
		return nil // /proc/sys may be read-only and right
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl to %s: %w", value, err)
	}
	return nil
}
