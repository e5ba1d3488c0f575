// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Action is what can be done to a component.
type Action string

// Actions on a component. Kill ends it at once, and the supervisor restarts it, as after a
// crash; Stop keeps it down.
const (
	StartAction   Action = "start"
	StopAction    Action = "stop"
	RestartAction Action = "restart"
	KillAction    Action = "kill"
)

const startLimit = 30 * time.Second

// handler serves the control socket:
//
//	GET  /components                  all statuses, in the order of the spec
//	POST /components/NAME/ACTION      answers when the action has taken effect
func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /components", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.statuses())
	})
	mux.HandleFunc("POST /components/{name}/{action}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.act(r.PathValue("name"), Action(r.PathValue("action"))); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	return mux
}

func (s *supervisor) act(name string, action Action) error {
	if _, known := s.items[name]; !known {
		return fmt.Errorf("machine %s has no component %q", s.machine.Name, name)
	}
	switch action {
	case StartAction:
		return s.start(name, startLimit)
	case StopAction:
		return s.stop(name)
	case RestartAction:
		if err := s.stop(name); err != nil {
			return err
		}
		return s.start(name, startLimit)
	case KillAction:
		return s.kill(name)
	}
	return fmt.Errorf("%q is no action; use start, stop, restart or kill", action)
}

// ErrDown: no process 1 answers on a machine's control socket.
var ErrDown = errors.New("the machine is down")

// Client talks to the control socket of a machine. The zero value is not usable.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the machine that listens on socket.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Components returns the statuses, or ErrDown.
func (c *Client) Components(ctx context.Context) ([]Status, error) {
	body, err := c.do(ctx, http.MethodGet, "/components")
	if err != nil {
		return nil, err
	}
	var out []Status
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, fmt.Errorf("decode the answer of %s: %w", c.socket, err)
	}
	return out, nil
}

// Act does an action to a component and returns when it has taken effect. ErrDown means
// that the machine itself is down.
func (c *Client) Act(ctx context.Context, component string, action Action) error {
	_, err := c.do(ctx, http.MethodPost, "/components/"+component+"/"+string(action))
	return err
}

func (c *Client) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w (no process listens on %s)", ErrDown, c.socket)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}

// HostPID returns the process number of process 1 of the machine on the host, or ErrDown. It
// asks the kernel for the owner of the control socket, so that no file can be stale.
func HostPID(socket string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		return 0, fmt.Errorf("%w (no process listens on %s)", ErrDown, socket)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, fmt.Errorf("ask the kernel for the listener of %s: %w", socket, credErr)
	}
	return int(cred.Pid), nil
}
