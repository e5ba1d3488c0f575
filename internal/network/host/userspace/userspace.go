// SPDX-License-Identifier: Apache-2.0

package userspace

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

// Device is a WireGuard device in this process, for kernels without WireGuard. It is configured like a device of another program,
// through the control socket of its name.
type Device struct {
	device *device.Device
	socket net.Listener
	Index  int
}

func Open(name string, mtu int, network conn.Bind, log logr.Logger) (*Device, error) {
	if err := EnsureTUN(tunPath); err != nil {
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
	u := &Device{Index: link.Index, device: device.NewDevice(limited, network, &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf: func(format string, values ...any) {
			log.Info("userspace WireGuard", "message", fmt.Sprintf(format, values...))
		},
	})}
	if err := limited.start(u.device); err != nil {
		log.Error(err, "cannot bound the memory of userspace WireGuard; a new version of wireguard-go may have moved its pool")
	}
	if err := u.listen(name); err != nil {
		u.device.Close()
		return nil, err
	}
	log.Info("kernel has no WireGuard, so it runs in this process", "link", name)
	return u, nil
}

// listen serves the control socket until the device ends.
func (u *Device) listen(name string) error {
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return fmt.Errorf("create control socket of %s: %w", name, err)
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

// Alive reports whether the device still runs. It stops when its link is deleted.
func (u *Device) Alive() bool {
	select {
	case <-u.device.Wait():
		return false
	default:
		return true
	}
}

func (u *Device) Close() {
	u.device.Close()
	_ = u.socket.Close() // an error does no harm: the next device removes an old socket
}

const tunPath = "/dev/net/tun"

// EnsureTUN creates the device node in containers without it.
func EnsureTUN(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	const major, minor = 10, 200
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create folder of %s: %w", path, err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("create %s, which userspace WireGuard needs: %w", path, err)
	}
	return nil
}
