// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/topology"
)

// prepareDir makes the directory of named namespaces a shared mount, as iproute2 does: a
// namespace that is made or removed later is then so for running machines too.
func prepareDir() error {
	if err := os.MkdirAll(topology.NetNSDir, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", topology.NetNSDir, err)
	}
	err := unix.Mount("", topology.NetNSDir, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(topology.NetNSDir, topology.NetNSDir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", topology.NetNSDir, "", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", topology.NetNSDir, err)
	}
	return nil
}

// removeDir removes the directory if it holds no namespace.
func removeDir() error {
	entries, err := os.ReadDir(topology.NetNSDir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", topology.NetNSDir, err)
	}
	mounts, err := machine.MountsBelow(topology.NetNSDir)
	if err != nil {
		return err
	}
	for range mounts {
		if err := unix.Unmount(topology.NetNSDir, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", topology.NetNSDir, err)
		}
	}
	if err := os.Remove(topology.NetNSDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", topology.NetNSDir, err)
	}
	return nil
}

// create makes a named namespace with its loopback up and the settings written.
func create(at string, settings map[string]string) (netns.NsHandle, error) {
	type made struct {
		ns  netns.NsHandle
		err error
	}
	result := make(chan made, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: it is in the new namespace
		ns, err := netns.NewNamed(path.Base(at))
		if err != nil {
			result <- made{err: fmt.Errorf("create network namespace %s: %w", path.Base(at), err)}
			return
		}
		result <- made{ns, furnish(settings)}
	}()
	m := <-result
	if m.err != nil && m.ns.IsOpen() {
		_ = m.ns.Close()
	}
	return m.ns, m.err
}

func furnish(settings map[string]string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	for name, value := range settings {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", name, value, err)
		}
	}
	return nil
}

// remove deletes a named namespace; one that is missing is no error.
func remove(at string) error {
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", at, err)
	}
	return nil
}
