// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// minimum are settings that several kubelets and runtimes together need larger than the defaults.
var minimum = map[string]int{
	"fs/inotify/max_user_instances": 8192,
	"fs/inotify/max_user_watches":   524288,
	"kernel/keys/maxkeys":           20000,
	"kernel/keys/maxbytes":          2000000,
}

// touched are settings that every kubelet writes at its start.
var touched = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// controllers is what the root group of cgroup version 2 hands down to its children; every
// machine adds all there are. It does not exist where version 1 is in use.
const controllers = "/sys/fs/cgroup/cgroup.subtree_control"

// SaveSettings returns the present values of every machine-wide setting that a playground
// changes, to be given to RestoreSettings when it is gone. Settings that this kernel lacks
// are left out.
func SaveSettings() (map[string]string, error) {
	saved := map[string]string{}
	names := append([]string{controllers}, touched...)
	for name := range minimum {
		names = append(names, name)
	}
	for _, name := range names {
		data, err := os.ReadFile(settingPath(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read setting %s: %w", name, err)
		}
		saved[name] = strings.TrimSpace(string(data))
	}
	return saved, nil
}

// RaiseSettings lifts what is below the minimum.
func RaiseSettings(current map[string]string) error {
	for name, least := range minimum {
		value, err := strconv.Atoi(current[name])
		if err != nil || value >= least {
			continue // not there, or enough
		}
		if err := writeSetting(name, strconv.Itoa(least)); err != nil {
			return err
		}
	}
	return nil
}

// RestoreSettings writes saved values back.
func RestoreSettings(saved map[string]string) error {
	var problems []error
	for name, value := range saved {
		if name == controllers {
			problems = append(problems, takeBack(strings.Fields(value)))
		} else {
			problems = append(problems, writeSetting(name, value))
		}
	}
	return errors.Join(problems...)
}

// takeBack disables the controllers that were not enabled before. A controller that another
// program has come to use is busy, and stays.
func takeBack(before []string) error {
	now, err := os.ReadFile(controllers)
	if err != nil {
		return fmt.Errorf("read the controllers of the root cgroup: %w", err)
	}
	for _, c := range strings.Fields(string(now)) {
		if slices.Contains(before, c) {
			continue
		}
		if err := os.WriteFile(controllers, []byte("-"+c), 0); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("take controller %s back from the children of the root cgroup: %w", c, err)
		}
	}
	return nil
}

// settingPath is the file of a setting: below /proc/sys unless the name is a whole path.
func settingPath(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join("/proc/sys", name)
}

func writeSetting(name, value string) error {
	if err := os.WriteFile(settingPath(name), []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}
