// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/spec"
)

// fromHost are the parts of the host that a machine with its own root sees read-only: programs
// and their data, but no state.
var fromHost = []string{
	"/usr", "/etc/alternatives", "/etc/ssl", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/iproute2", "/etc/protocols", "/etc/services", "/etc/ca-certificates",
}

// rootLevel are either links into /usr (merged systems) or directories of their own.
var rootLevel = []string{"/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"}

// enterRoot makes the machine's view of the file system. It must run in a new mount namespace;
// the host does not see its mounts.
func enterRoot(m spec.Machine) error {
	// Slave, not private: an unmount of the host must also take effect here, or a namespace or
	// disk would stay busy. Mounts made here must not reach the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("detach mounts from the host: %w", err)
	}
	all, err := hostHierarchies() // while the host's tree is still accessible
	if err != nil {
		return err
	}
	if m.Root == "" {
		for _, b := range m.Binds {
			if err := bind("/", b); err != nil {
				return err
			}
		}
		return mountKernel("/", all)
	}
	if err := buildRoot(m); err != nil {
		return err
	}
	if err := mountKernel(m.Root, all); err != nil {
		return err
	}
	if err := pivot(m.Root); err != nil {
		return err
	}
	// The kubelet and network plugins hand mounts to containers by propagation.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts with containers: %w", err)
	}
	return nil
}

func buildRoot(m spec.Machine) error {
	for _, dir := range []string{"etc", "dev", "proc", "sys", "run", "tmp", "root", "var/lib", "var/log", "var/tmp", "opt", "mnt", "old"} {
		if err := os.MkdirAll(filepath.Join(m.Root, dir), 0o755); err != nil {
			return fmt.Errorf("create root directory: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(m.Root, "tmp"), 0o1777|fs.ModeSticky); err != nil {
		return fmt.Errorf("open /tmp to all: %w", err)
	}
	// pivot_root requires a mount point.
	if err := unix.Mount(m.Root, m.Root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on itself: %w", m.Root, err)
	}
	binds := make([]spec.Bind, 0, len(fromHost)+len(rootLevel)+len(m.Binds))
	for _, path := range rootLevel {
		target, err := os.Readlink(path)
		switch {
		case err == nil:
			if err := os.Symlink(target, filepath.Join(m.Root, path)); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("link %s: %w", path, err)
			}
		case exists(path):
			binds = append(binds, spec.Bind{Source: path, Target: path, ReadOnly: true})
		}
	}
	for _, path := range fromHost {
		if exists(path) {
			binds = append(binds, spec.Bind{Source: path, Target: path, ReadOnly: true})
		}
	}
	binds = append(binds, spec.Bind{Source: "/dev", Target: "/dev"})
	for _, b := range append(binds, m.Binds...) {
		if err := bind(m.Root, b); err != nil {
			return err
		}
	}
	return writeIdentity(m)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func bind(root string, b spec.Bind) error {
	target := filepath.Join(root, b.Target)
	info, err := os.Stat(b.Source)
	if err != nil {
		return fmt.Errorf("bind into the machine: %w", err)
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("make mount point %s: %w", target, err)
	}
	if err := unix.Mount(b.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", b.Source, target, err)
	}
	if b.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(-1, target, unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("make %s read only: %w", target, err)
		}
	}
	return nil
}

// writeIdentity writes the files that identify the machine to its programs. It has only the
// system accounts: no user logs in to a node.
func writeIdentity(m spec.Machine) error {
	for name, text := range map[string]string{
		"etc/hostname":      m.Hostname + "\n",
		"etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 " + m.Hostname + "\n",
		"etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":         "root:x:0:\nnogroup:x:65534:\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
		// No name server: the playground has no way out, and a wrong server costs seconds per query.
		"etc/resolv.conf": "",
		"etc/machine-id":  machineID(m.Name) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(m.Root, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write identity: %w", err)
		}
	}
	return nil
}

// mountKernel mounts, below root, the file systems that show this machine's namespaces.
func mountKernel(root string, all []hierarchy) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("sysfs", filepath.Join(root, "sys"), "sysfs", flags, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := mountCgroups(root, all); err != nil {
		return err
	}
	if root == "/" {
		return nil // /run stays the host's: it holds the network namespaces
	}
	if err := unix.Mount("tmpfs", filepath.Join(root, "run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

func pivot(root string) error {
	old := filepath.Join(root, "old")
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("enter root %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("change to the new root: %w", err)
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	return nil
}

// MountsBelow lists the host's mount points below dir. While there are any, files below dir must
// not be removed: the removal would follow the mounts.
func MountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	var out []string
	for line := range strings.SplitSeq(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			out = append(out, fields[4])
		}
	}
	return out, nil
}
