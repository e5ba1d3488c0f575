// SPDX-License-Identifier: Apache-2.0

// Package host checks whether a playground can run on this machine, and saves, raises and
// restores the machine's settings.
//
// It changes nothing but those settings (settings.go). Its proof is host_test.go, which breaks
// the values that the checks read.
package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/topology"
)

// Needs are the requirements that Check checks.
type Needs struct {
	// Network must not overlap any other route.
	Network netip.Prefix
	// Dir is where state will live, FreeBytes what its disk must have left.
	Dir       string
	FreeBytes uint64
	// Go is the command that runs Go, if programs must be built; empty if not.
	Go string
}

// tool is a program that must be there and the Debian package that brings it.
type tool struct{ program, debian string }

var (
	runTools = []tool{
		{"nft", "nftables"},
		{"iptables", "iptables"},
		{"mount", "mount"},
		{"umount", "mount"},
		{"nsenter", "util-linux"},
		{"tail", "coreutils"},
	}
	buildTools = []tool{{"gcc", "gcc"}, {"pkg-config", "pkg-config"}}
)

// Check returns all problems joined; nil means that a playground can start. It changes nothing.
func Check(n Needs) error {
	if os.Geteuid() != 0 {
		return errors.New("not root: namespaces, cgroups and mounts need it; run with sudo")
	}
	problems := []error{checkTools(n), checkNamespaces(), checkDisk(n), checkNetwork(n.Network)}
	return errors.Join(problems...)
}

func checkTools(n Needs) error {
	tools := runTools
	if n.Go != "" {
		tools = append(append([]tool{{n.Go, "golang-go"}}, tools...), buildTools...)
	}
	var programs, packages []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			programs, packages = append(programs, t.program), append(packages, t.debian)
		}
	}
	if n.Go != "" && exec.Command("pkg-config", "--exists", "libseccomp").Run() != nil {
		programs, packages = append(programs, "libseccomp's headers"), append(packages, "libseccomp-dev")
	}
	if len(programs) == 0 {
		return nil
	}
	return fmt.Errorf("missing: %s; on Debian: apt-get install %s (elsewhere, the packages that bring these programs)",
		strings.Join(programs, ", "), strings.Join(packages, " "))
}

// checkNamespaces tries to create the namespaces of a machine, in a process that ends at once.
func checkNamespaces() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the kernel makes no namespaces for this user: %w; inside a container it must be privileged", err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("no TUN device: %w; link delays and user-space tunnels need it (mknod /dev/net/tun c 10 200)", err)
	}
	return nil
}

// checkDisk requires free space, and a file system that overlays can use.
func checkDisk(n Needs) error {
	dir := n.Dir
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			break
		}
		dir = dir[:max(1, strings.LastIndexByte(dir, '/'))]
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("read the disk of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < n.FreeBytes {
		return fmt.Errorf("%s has %d MB free, a playground needs %d MB; free some space or mount a larger disk there", dir, free>>20, n.FreeBytes>>20)
	}
	if int64(st.Type) == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s lies on an overlay file system, on which containers cannot have theirs; mount a volume there", dir)
	}
	return nil
}

func checkNetwork(network netip.Prefix) error {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the machine's routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		to, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		ones, _ := r.Dst.Mask.Size()
		if !ok || ones == 0 || !netip.PrefixFrom(to, ones).Overlaps(network) {
			continue
		}
		name := "?"
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
			name = link.Attrs().Name
		}
		if name == topology.HostLink {
			continue // a leftover of ours, which is removed before the start
		}
		return fmt.Errorf("the playground's network %s overlaps this machine's route to %s (interface %s); choose another with --network", network, r.Dst, name)
	}
	return nil
}

// MayLowerOOMScore reports whether this process has the privilege (CAP_SYS_RESOURCE) that
// container runtimes use to protect important containers from the kernel's memory killer.
func MayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
