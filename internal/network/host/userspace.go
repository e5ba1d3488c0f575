// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// userspace is a WireGuard device that runs in this process, for kernels that have none. It is configured as one of another
// program would be, through the socket of its name.
type userspace struct {
	device *device.Device
	socket net.Listener
	index  int
}

func openUserspace(name string, mtu int, log logr.Logger) (*userspace, error) {
	if err := ensureTUN(tunPath); err != nil {
		return nil, err
	}
	native, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return nil, fmt.Errorf("create TUN device %s: %w", name, err)
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find TUN device %s: %w", name, err), native.Close())
	}
	log = log.WithName("wireguard")
	limited := newLimitedTUN(native)
	u := &userspace{index: link.Index, device: device.NewDevice(limited, conn.NewDefaultBind(), &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf: func(format string, values ...any) {
			log.Info("userspace WireGuard", "message", fmt.Sprintf(format, values...))
		},
	})}
	if err := limited.start(u.device); err != nil {
		log.Error(err, "memory of userspace WireGuard is not bounded")
	}
	if err := u.listen(name); err != nil {
		u.device.Close()
		return nil, err
	}
	log.Info("this kernel has no WireGuard, so it runs in this process", "link", name)
	return u, nil
}

// listen serves the control socket until the device ends.
func (u *userspace) listen(name string) error {
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return fmt.Errorf("make control socket of %s: %w", name, err)
	}
	defer file.Close()
	if u.socket, err = ipc.UAPIListen(name, file); err != nil {
		return fmt.Errorf("listen on control socket of %s: %w", name, err)
	}
	go func() {
		for {
			conn, err := u.socket.Accept()
			if err != nil {
				return // closed
			}
			go u.device.IpcHandle(conn)
		}
	}()
	return nil
}

// alive tells whether the device still runs. It ends by itself when somebody deletes its link.
func (u *userspace) alive() bool {
	select {
	case <-u.device.Wait():
		return false
	default:
		return true
	}
}

func (u *userspace) close() {
	u.device.Close()
	_ = u.socket.Close() // nothing to do about it; the next device clears a socket that was left
}

const tunPath = "/dev/net/tun"

// ensureTUN makes the device node in containers that come without it.
func ensureTUN(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	const major, minor = 10, 200
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", path, err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("make %s, which WireGuard needs without the kernel's: %w", path, err)
	}
	return nil
}
