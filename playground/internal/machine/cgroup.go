// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup tree of the host.
type hierarchy struct {
	// Mount is its mount point on the host; Version is 1 or 2.
	Mount   string
	Version int
	// Controllers are the options by which a version 1 hierarchy is mounted again
	// ("cpu,cpuacct" or "name=systemd"); empty for version 2.
	Controllers string
}

// name is the directory of a version 1 hierarchy below /sys/fs/cgroup.
func (h hierarchy) name() string { return filepath.Base(h.Mount) }

// v1Options are the mount options that are not controllers.
var v1Options = []string{"rw", "ro", "xattr", "noprefix", "clone_children", "relatime"}

// hierarchies selects, from the host's mounts, the trees that a node must join: all version 1
// trees with a controller or a name, or else the single version 2 tree. On a hybrid host
// the version 2 tree holds no controllers and is left out.
func hierarchies(mounts []*mountinfo.Info) []hierarchy {
	var v1, v2 []hierarchy
	seen := map[string]bool{}
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup":
			var controllers []string
			for _, o := range strings.Split(m.VFSOptions, ",") {
				if !slices.Contains(v1Options, o) && !strings.HasPrefix(o, "release_agent=") {
					controllers = append(controllers, o)
				}
			}
			key := strings.Join(controllers, ",")
			if key != "" && !seen[key] {
				seen[key] = true
				v1 = append(v1, hierarchy{Mount: m.Mountpoint, Version: 1, Controllers: key})
			}
		case "cgroup2":
			if len(v2) == 0 {
				v2 = append(v2, hierarchy{Mount: m.Mountpoint, Version: 2})
			}
		}
	}
	if len(v1) > 0 {
		return v1
	}
	return v2
}

func hostHierarchies() ([]hierarchy, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	found := hierarchies(mounts)
	if len(found) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted on this machine; nodes cannot be bounded without one (mount cgroup2 on /sys/fs/cgroup)")
	}
	return found, nil
}

// enterCgroups creates the group below every hierarchy, moves this process into it, and
// makes it the root of a new cgroup namespace, which children of this thread inherit.
//
// The namespace is made here and not with the child: its root is the group of its maker at that
// moment, and on version 2 no process may stay there (leaveGroupRoot), not even this one.
func enterCgroups(group string) error {
	all, err := hostHierarchies()
	if err != nil {
		return err
	}
	dirs := make([]string, len(all))
	for i, h := range all {
		if dirs[i], err = makeGroup(h, group); err != nil {
			return err
		}
		if err := joinGroup(dirs[i]); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	if all[0].Version == 2 {
		return leaveGroupRoot(dirs[0])
	}
	return nil
}

// joinGroup moves this process into a group.
func joinGroup(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("join cgroup %s: %w", dir, err)
	}
	return nil
}

// makeGroup creates a group and its parents. Version 1 cpuset groups start empty and refuse
// processes until they are filled; version 2 groups have only the controllers their parents
// hand down.
func makeGroup(h hierarchy, group string) (string, error) {
	dir := h.Mount
	for _, part := range strings.Split(group, "/") {
		if h.Version == 2 {
			err := handDown(dir)
			if errors.Is(err, unix.EBUSY) {
				err = fmt.Errorf("%w; this machine's own cgroup holds processes, as that of a container does; move them to a child: mkdir %[2]s/init; "+
					"for p in $(cat %[2]s/cgroup.procs); do echo $p > %[2]s/init/cgroup.procs; done", err, dir)
			}
			if err != nil {
				return "", err
			}
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("create cgroup %s: %w", dir, err)
		}
		if h.Version == 1 && strings.Contains(","+h.Controllers+",", ",cpuset,") {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(dir, file); err != nil {
					return "", err
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0); err != nil {
				return "", fmt.Errorf("let children of cgroup %s inherit its processors: %w", dir, err)
			}
		}
	}
	return dir, nil
}

func inherit(dir, file string) error {
	own := filepath.Join(dir, file)
	if current, err := os.ReadFile(own); err == nil && strings.TrimSpace(string(current)) != "" {
		return nil
	}
	value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
	if err != nil {
		return fmt.Errorf("read %s of the parent of cgroup %s: %w", file, dir, err)
	}
	if err := os.WriteFile(own, value, 0); err != nil {
		return fmt.Errorf("fill %s: %w", own, err)
	}
	return nil
}

// handDown enables for children every controller that the group itself has.
func handDown(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of cgroup %s: %w", dir, err)
	}
	for _, c := range strings.Fields(string(available)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("hand controller %s of cgroup %s down to children: %w", c, dir, err)
		}
	}
	return nil
}

// mountCgroups mounts, inside a machine's own cgroup and mount namespaces, every hierarchy
// again: its root is then this machine's group. root is "/" or the future root directory.
func mountCgroups(root string, all []hierarchy) error {
	base := filepath.Join(root, "sys/fs/cgroup")
	if all[0].Version == 2 {
		if err := unix.Mount("cgroup2", base, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount cgroup2 on %s: %w", base, err)
		}
		return nil
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", base, err)
	}
	for _, h := range all {
		dir := filepath.Join(base, h.name())
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("create %s: %w", dir, err)
		}
		options := h.Controllers
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}
		if err := unix.Mount("cgroup", dir, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("mount cgroup %s on %s: %w", h.Controllers, dir, err)
		}
		// A tree with several controllers is addressed by each of their names.
		for _, c := range strings.Split(h.Controllers, ",") {
			if link := filepath.Join(base, c); link != dir && !strings.Contains(c, "=") {
				if err := os.Symlink(h.name(), link); err != nil {
					return fmt.Errorf("link cgroup controller %s: %w", c, err)
				}
			}
		}
	}
	return nil
}

// leaveGroupRoot moves this process to a leaf: on version 2 a group with processes cannot enable
// controllers for its children, and the kubelet must do that.
func leaveGroupRoot(base string) error {
	leaf := filepath.Join(base, "init")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		return fmt.Errorf("create cgroup %s: %w", leaf, err)
	}
	if err := joinGroup(leaf); err != nil {
		return err
	}
	return handDown(base)
}

// Processes lists all processes below a group by their numbers on the host. It needs no record of
// what was started; a missing group has no processes.
func Processes(group string) ([]int, error) {
	all, err := hostHierarchies()
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, h := range all {
		err := filepath.WalkDir(filepath.Join(h.Mount, group), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.Name() != "cgroup.procs" {
				return err
			}
			data, err := os.ReadFile(path)
			// A threaded group of version 2 shows its processes in the group above it only.
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
				return nil
			}
			for _, field := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					found[pid] = true
				}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list the processes of cgroup %s: %w", group, err)
		}
	}
	pids := make([]int, 0, len(found))
	for pid := range found {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// KillGroup kills everything below a group and removes the group, within the limit.
// It may be called for a group that does not exist.
func KillGroup(group string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		pids, err := Processes(group)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d of cgroup %s: %w", pid, group, err)
			}
		}
		if len(pids) == 0 {
			if err = removeGroup(group); err == nil {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup %s is not empty after %s: processes %v are left, last error: %w", group, limit, pids, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func removeGroup(group string) error {
	all, err := hostHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(h.Mount, group), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("list cgroup %s: %w", group, err)
		}
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}
