// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/spec"
)

// Init is the body of process 1. It returns when the machine receives SIGTERM, or when it could
// not be built. The caller must then exit, and the kernel ends what is left inside.
func Init() error {
	ready := os.NewFile(fdReady, "ready")
	m, listener, logs, err := prepare()
	if err != nil {
		_, _ = io.WriteString(ready, err.Error())
		return err
	}
	unix.CloseOnExec(fdReady)
	unix.CloseOnExec(fdSocket)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := newSupervisor(m, logs, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	go s.reaper()(context.Background()) // also while the machine goes down
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	s.startAll(ctx)
	if _, err := io.WriteString(ready, "ok"); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	_ = ready.Close()
	<-ctx.Done()
	s.stopAll()
	return nil
}

// prepare takes over what Launch handed down and builds the machine. It opens the logs before
// the host's files become inaccessible.
func prepare() (m spec.Machine, listener net.Listener, logs map[string]*os.File, err error) {
	data, err := io.ReadAll(os.NewFile(fdSpec, "spec"))
	if err != nil {
		return m, nil, nil, fmt.Errorf("read spec: %w", err)
	}
	if m, err = decode(data); err != nil {
		return m, nil, nil, err
	}
	if listener, err = net.FileListener(os.NewFile(fdSocket, "socket")); err != nil {
		return m, nil, nil, fmt.Errorf("take over the control socket: %w", err)
	}
	// A second listen makes this process, not Launch's, the one that the kernel reports to
	// clients of the socket (HostPID).
	if err = unix.Listen(fdSocket, unix.SOMAXCONN); err != nil {
		return m, nil, nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	logs = map[string]*os.File{}
	for _, c := range m.Components {
		path := filepath.Join(m.LogDir, c.Name+".log")
		if logs[c.Name], err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return m, nil, nil, fmt.Errorf("open log: %w", err)
		}
	}
	if err = unix.Sethostname([]byte(m.Hostname)); err != nil {
		return m, nil, nil, fmt.Errorf("set host name: %w", err)
	}
	if err = enterRoot(m); err != nil {
		return m, nil, nil, err
	}
	return m, listener, logs, raiseFileLimit()
}

// raiseFileLimit lifts the soft limit to the hard one, the most that needs no privilege.
func raiseFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Cur, Max: limit.Max}); err != nil {
		return fmt.Errorf("raise the limit of open files to %d: %w", limit.Max, err)
	}
	return nil
}

// machineID depends on the name only, so that a node that restarts keeps its identity.
func machineID(name string) string {
	sum := sha256.Sum256([]byte("liqo-playground/" + name))
	return hex.EncodeToString(sum[:16])
}
