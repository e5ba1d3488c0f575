// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/progress"
)

// Builder builds components into a cache.
type Builder struct {
	// Source is the playground's source directory, Cache the directory that keeps results.
	Source, Cache string
	Progress      *progress.Printer
}

// niceness gives other programs precedence: a build takes every core for minutes.
const niceness = 10

// Go is the command that runs Go: the checkout's own, which gets the pinned release where
// the machine has another one.
func (b Builder) Go() string {
	if own := filepath.Join(b.Source, "..", "hack", "go"); isExecutable(own) {
		return own
	}
	return "go"
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// kept returns the directory of a component, and whether it is built.
func (b Builder) kept(c Component) (dir string, built bool, err error) {
	key, err := Key(b.Source, c)
	if err != nil {
		return "", false, err
	}
	dir = filepath.Join(b.Cache, "component", c.Name+"-"+key)
	_, err = os.Stat(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("look for component %s: %w", c.Name, err)
	}
	return dir, err == nil, nil
}

// component builds one component unless it is in the cache, and returns its directory.
func (b Builder) component(ctx context.Context, c Component, pace *pace) (string, error) {
	dir, built, err := b.kept(c)
	if err != nil || built {
		return dir, err
	}
	number, of := pace.start(c.Name)
	step := b.Progress.Step(fmt.Sprintf("build %s, program %d of %d", c.Name, number, of))
	err = atomically(dir, func(tmp string) error {
		return b.compile(ctx, c, tmp, func(text string) { step.Update(pace.left() + "; " + text) })
	})
	step.End(err)
	return dir, err
}

// atomically fills a temporary directory and renames it: a directory that exists is complete.
func atomically(dir string, fill func(tmp string) error) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	if err := fill(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("keep in the cache: %w", err)
	}
	return nil
}

func (b Builder) compile(ctx context.Context, c Component, out string, report func(string)) error {
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", strings.TrimSpace("-s -w " + c.LDFlags), "-o", out + "/"}
	if c.Tags != "" {
		args = append(args, "-tags", c.Tags)
	}
	cmd := exec.CommandContext(ctx, b.Go(), append(args, c.Packages...)...)
	cmd.Dir = filepath.Join(b.Source, c.Dir)
	cgo := "0"
	if c.CGO {
		cgo = "1"
	}
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED="+cgo)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	output, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("build %s: %w", c.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w (is Go installed?)", c.Name, err)
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, niceness) // a courtesy, not a need
	var tail []string
	count := 0
	for lines := bufio.NewScanner(output); lines.Scan(); {
		count++
		report(fmt.Sprintf("%d packages, %s", count, lines.Text()))
		if tail = append(tail, lines.Text()); len(tail) > 20 {
			tail = tail[1:]
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build %s: %w", c.Name, context.Cause(ctx))
		}
		return fmt.Errorf("build %s: %w; the last output of the Go tool:\n%s", c.Name, err, strings.Join(tail, "\n"))
	}
	return nil
}

// lock keeps two builds out of one cache; it is let go when the process ends.
func (b Builder) lock() (unlock func(), err error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(b.Cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the cache's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	return func() { _ = f.Close() }, nil
}
