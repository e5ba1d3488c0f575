// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/spec"
)

// InitCommand is the hidden first argument by which this program runs as process 1.
const InitCommand = "machine-init"

// LaunchCommand is the hidden first argument of the short-lived process that enters the
// cgroup and the network namespace and starts process 1 from there.
const LaunchCommand = "machine-launch"

// inherited file descriptors of process 1
const (
	fdSpec   = 3
	fdSocket = 4
	fdReady  = 5
)

// Start runs a machine and returns when its root is built and its control socket answers;
// its components may still be starting. The spec is written to specPath, which is how a
// later Start (after Kill) finds the same machine.
func Start(m spec.Machine, specPath string) error {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("encode the spec of machine %s: %w", m.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(specPath), 0o700); err != nil {
		return fmt.Errorf("write the spec of machine %s: %w", m.Name, err)
	}
	if err := os.WriteFile(specPath, data, 0o600); err != nil {
		return fmt.Errorf("write the spec of machine %s: %w", m.Name, err)
	}
	return Resume(specPath)
}

// Resume starts the machine whose spec was written by Start.
func Resume(specPath string) error {
	cmd := exec.Command("/proc/self/exe", LaunchCommand, specPath)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("start machine of %s: %s: %w", specPath, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// Launch is the body of LaunchCommand. It changes the namespaces of its thread and the cgroup of
// its process, so the process must do nothing else.
func Launch(specPath, group string) error {
	runtime.LockOSThread() // never unlocked: this process ends right after
	m, err := ReadSpec(specPath)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.LogDir, 0o755); err != nil {
		return fmt.Errorf("create log directory: %w", err)
	}
	if err := enterCgroups(filepath.Join(group, m.Name)); err != nil {
		return err
	}
	listener, err := listen(m.Socket)
	if err != nil {
		return err
	}
	specFile, err := os.Open(specPath)
	if err != nil {
		return fmt.Errorf("open spec: %w", err)
	}
	logFile, err := os.OpenFile(filepath.Join(m.LogDir, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	ready, readyChild, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", InitCommand, m.Name)
	cmd.Args[0] = "playground" // what ps shows
	cmd.Env = []string{"GOMAXPROCS=2"}
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{specFile, listener, readyChild}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true,
	}
	if err := startIn(m.NetNS, cmd); err != nil {
		return fmt.Errorf("start process 1 of machine %s: %w", m.Name, err)
	}
	_ = readyChild.Close()
	return awaitReady(ready, m)
}

// awaitReady reads the report of process 1 until the end of the pipe: "ok" or an error.
func awaitReady(ready io.Reader, m spec.Machine) error {
	report, err := io.ReadAll(ready)
	if err != nil {
		return fmt.Errorf("wait for machine %s: %w", m.Name, err)
	}
	if text := string(report); text != "ok" {
		if text == "" {
			text = "it ended without a message; see " + filepath.Join(m.LogDir, "init.log")
		}
		return fmt.Errorf("machine %s did not start: %s", m.Name, text)
	}
	return nil
}

// startIn starts cmd in a named network namespace: a child inherits that of the thread,
// which the caller has locked.
func startIn(netns string, cmd *exec.Cmd) error {
	fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", netns, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", netns, err)
	}
	return cmd.Start()
}

func listen(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create directory of control socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove stale control socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, fmt.Errorf("listen on control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l.File()
}

// ReadSpec reads what Start wrote.
func ReadSpec(specPath string) (spec.Machine, error) {
	data, err := os.ReadFile(specPath)
	if err != nil {
		return spec.Machine{}, fmt.Errorf("read spec: %w", err)
	}
	return decode(data)
}

func decode(data []byte) (spec.Machine, error) {
	var m spec.Machine
	if err := json.Unmarshal(data, &m); err != nil {
		return spec.Machine{}, fmt.Errorf("decode spec: %w", err)
	}
	return m, nil
}
