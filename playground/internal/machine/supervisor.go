// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"liqo.io/liqo/playground/internal/spec"
)

// State is what a component is doing.
type State string

// States of a component.
const (
	Waiting State = "waiting" // its conditions do not hold yet
	Running State = "running"
	Backoff State = "backoff" // it ended, and will be restarted
	Stopped State = "stopped" // by a command, until one starts it
	Done    State = "done"    // a Once component that succeeded
)

// Status is a component as the control socket shows it.
type Status struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// PID is inside the machine; 0 when not running.
	PID int `json:"pid,omitempty"`
	// Starts counts starts since the machine came up.
	Starts int       `json:"starts"`
	Since  time.Time `json:"since"`
	// LastExit describes how it last ended.
	LastExit string `json:"lastExit,omitempty"`
}

const (
	stopGrace  = 10 * time.Second
	waitPoll   = 10 * time.Millisecond
	minBackoff = 200 * time.Millisecond
	maxBackoff = 5 * time.Second
	// goodRun is the run time after which a failure resets the backoff.
	goodRun = 10 * time.Second
)

type supervisor struct {
	machine spec.Machine
	logs    map[string]*os.File
	log     *slog.Logger

	mu      sync.Mutex
	changed *sync.Cond // on mu: any status or desired state changed
	exits   map[int]chan syscall.WaitStatus
	items   map[string]*item
}

// item is a component with its state; all fields but c are guarded by supervisor.mu.
type item struct {
	c      spec.Component
	status Status
	wanted bool // false: stopped by a command
	// nudge is closed and replaced when wanted changes, to end waiting and backoff early.
	nudge chan struct{}
}

func newSupervisor(m spec.Machine, logs map[string]*os.File, log *slog.Logger) *supervisor {
	s := &supervisor{machine: m, logs: logs, log: log, exits: map[int]chan syscall.WaitStatus{}, items: map[string]*item{}}
	s.changed = sync.NewCond(&s.mu)
	for _, c := range m.Components {
		s.items[c.Name] = &item{
			c: c, wanted: true, nudge: make(chan struct{}),
			status: Status{Name: c.Name, State: Waiting, Since: time.Now()},
		}
	}
	return s
}

func (s *supervisor) startAll(ctx context.Context) {
	for _, c := range s.machine.Components {
		go s.keep(ctx, s.items[c.Name])
	}
}

// keep holds one component in the desired state for the life of the machine.
func (s *supervisor) keep(ctx context.Context, it *item) {
	pause := minBackoff
	for ctx.Err() == nil {
		nudge, wanted := s.desired(it)
		if !wanted {
			s.set(it, Stopped, 0, "")
			<-nudge
			continue
		}
		s.set(it, Waiting, 0, "")
		if !s.conditions(it.c, nudge) {
			continue
		}
		started := time.Now()
		exit, err := s.run(it)
		if err == nil && it.c.Once && exit.ExitStatus() == 0 {
			s.set(it, Done, 0, "exit 0")
			return
		}
		why := describe(exit, err)
		if _, wanted = s.desired(it); !wanted {
			s.set(it, Stopped, 0, why)
			continue
		}
		if time.Since(started) > goodRun {
			pause = minBackoff
		}
		s.log.Info("component ended", "component", it.c.Name, "how", why, "restart in", pause)
		s.set(it, Backoff, 0, why)
		select {
		case <-time.After(pause):
		case <-nudge:
		}
		pause = min(2*pause, maxBackoff)
	}
}

func describe(exit syscall.WaitStatus, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case exit.Signaled():
		return "signal " + exit.Signal().String()
	}
	return fmt.Sprintf("exit %d", exit.ExitStatus())
}

func (s *supervisor) desired(it *item) (nudge chan struct{}, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return it.nudge, it.wanted
}

func (s *supervisor) set(it *item, state State, pid int, exit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(it, state, pid, exit)
}

func (s *supervisor) setLocked(it *item, state State, pid int, exit string) {
	if it.status.State == state && it.status.PID == pid {
		return
	}
	it.status.State, it.status.PID, it.status.Since = state, pid, time.Now()
	if exit != "" {
		it.status.LastExit = exit
	}
	if state == Running {
		it.status.Starts++
	}
	s.changed.Broadcast()
}

// conditions waits until everything in After holds; false means that the desired state changed meanwhile.
func (s *supervisor) conditions(c spec.Component, nudge chan struct{}) bool {
	for _, w := range c.After {
		for !s.holds(w) {
			select {
			case <-nudge:
				return false
			case <-time.After(waitPoll):
			}
		}
	}
	return true
}

func (s *supervisor) holds(w spec.Wait) bool {
	if w.Done != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		it, found := s.items[w.Done]
		return found && it.status.State == Done
	}
	network, address := "tcp", w.TCP
	if w.Unix != "" {
		network, address = "unix", w.Unix
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// run starts the program and returns when it has ended.
func (s *supervisor) run(it *item) (syscall.WaitStatus, error) {
	path, err := lookPath(it.c)
	if err != nil {
		return 0, err
	}
	log := s.logs[it.c.Name].Fd()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	// The lock keeps the reaper from an exit whose channel does not exist yet, and stop from the
	// gap between the start and the record of the process number.
	s.mu.Lock()
	pid, err := syscall.ForkExec(path, it.c.Argv, &syscall.ProcAttr{
		Dir: "/", Env: it.c.Env, Files: []uintptr{null.Fd(), log, log},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		s.mu.Unlock()
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	exit := make(chan syscall.WaitStatus, 1)
	s.exits[pid] = exit
	s.setLocked(it, Running, pid, "")
	s.mu.Unlock()
	return <-exit, nil
}

// lookPath finds the program in the component's PATH instead of that of process 1. It must not set
// the latter, since several components start at the same time.
func lookPath(c spec.Component) (string, error) {
	program := c.Argv[0]
	for _, e := range c.Env {
		list, found := strings.CutPrefix(e, "PATH=")
		if !found || strings.Contains(program, "/") {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("program %s: %w %s", program, exec.ErrNotFound, list)
	}
	return exec.LookPath(program)
}

// reaper returns the function that collects every ended process: those of components, and orphans
// (container shims and their children), which the kernel reparents to process 1. It must be called
// before the first start: a process that ends before it would be collected with the next one only.
func (s *supervisor) reaper() func(context.Context) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD)
	return func(ctx context.Context) {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
				s.reap()
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *supervisor) reap() {
	for {
		var exit syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &exit, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
		s.mu.Lock()
		if c, known := s.exits[pid]; known {
			delete(s.exits, pid)
			c <- exit
		}
		s.mu.Unlock()
	}
}

// stopAll ends the components in reverse order, as a shutdown does.
func (s *supervisor) stopAll() {
	for _, c := range slices.Backward(s.machine.Components) {
		_ = s.stop(c.Name)
	}
}

func (s *supervisor) statuses() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Status, 0, len(s.machine.Components))
	for _, c := range s.machine.Components {
		out = append(out, s.items[c.Name].status)
	}
	return out
}

// want sets the desired state of a component and wakes its goroutine.
func (s *supervisor) want(it *item, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it.wanted = wanted
	close(it.nudge)
	it.nudge = make(chan struct{})
}

// start starts a component. It returns when its process runs, or an error after limit.
func (s *supervisor) start(name string, limit time.Duration) error {
	it := s.items[name]
	s.want(it, true)
	return s.await(it, limit, func(st Status) bool { return st.State == Running || st.State == Done })
}

// stop ends a component, with SIGKILL after a grace period, and keeps it down.
func (s *supervisor) stop(name string) error {
	it := s.items[name]
	s.want(it, false)
	s.signal(it, syscall.SIGTERM)
	down := func(st Status) bool { return st.State == Stopped || st.State == Done }
	if err := s.await(it, stopGrace, down); err == nil {
		return nil
	}
	s.signal(it, syscall.SIGKILL)
	return s.await(it, stopGrace, down)
}

// kill ends a component at once and returns when the process is gone. The component restarts.
func (s *supervisor) kill(name string) error {
	it := s.items[name]
	s.mu.Lock()
	before := it.status
	s.mu.Unlock()
	if before.State != Running {
		return fmt.Errorf("component %s of %s is not running but %s", name, s.machine.Name, before.State)
	}
	s.signal(it, syscall.SIGKILL)
	return s.await(it, stopGrace, func(st Status) bool { return st.PID != before.PID })
}

func (s *supervisor) signal(it *item, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.status.PID > 0 {
		_ = syscall.Kill(it.status.PID, sig)
	}
}

// await returns when the component's status satisfies the condition. The error of the timeout
// holds the actual status.
func (s *supervisor) await(it *item, limit time.Duration, holds func(Status) bool) error {
	timer := time.AfterFunc(limit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer timer.Stop()
	deadline := time.Now().Add(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	for !holds(it.status) {
		if !time.Now().Before(deadline) {
			return fmt.Errorf("component %s of %s is still %s after %s; last end: %q", it.c.Name, s.machine.Name, it.status.State, limit, it.status.LastExit)
		}
		s.changed.Wait()
	}
	return nil
}
