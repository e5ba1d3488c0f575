// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/hoststate"
)

// Each test runs as a process in a network namespace of its own, as the product does: wireguard-go opens sockets from
// any thread. It also has its own mount namespace, for the control sockets in /var/run/wireguard.
const (
	isolatedEnv = "LIQO_TEST_ISOLATED"
	roleEnv     = "LIQO_TEST_HOST"
)

func TestMain(m *testing.M) {
	if os.Getenv(isolatedEnv) != "" || os.Getenv(roleEnv) != "" {
		if err := enterIsolation(); err != nil {
			panic(err)
		}
	}
	if os.Getenv(roleEnv) != "" {
		serveHost(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// isolated runs the test again in a process with its own namespaces. It returns true in that process.
func isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedEnv) == t.Name() {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root, to make network namespaces; run the tests of internal/network/host as root")
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), isolatedEnv+"="+t.Name())
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	output, err := command.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(output), "--- SKIP") {
		t.Skip("SKIPPED, see above")
	}
	return false
}

func enterIsolation() error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		up("lo"),
	)
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// ---- a host as a process ----

type hostRequest struct {
	Want hoststate.State
	// Keys are private keys by public key.
	Keys map[string][32]byte
}

type hostAnswer struct {
	Changes []Change
	Error   string
	Tunnel  []TunnelPeer
}

// serveHost answers requests to apply a state until its input ends.
func serveHost(in io.Reader, out io.Writer) {
	requests, answers := gob.NewDecoder(in), gob.NewEncoder(out)
	keys := map[string][32]byte{}
	h, err := Open(Options{PrivateKey: func(public string) ([32]byte, bool) { key, ok := keys[public]; return key, ok }})
	if err != nil {
		panic(err)
	}
	for {
		var request hostRequest
		if err := requests.Decode(&request); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			panic(err)
		}
		for public, key := range request.Keys {
			keys[public] = key
		}
		var answer hostAnswer
		changes, err := h.Apply(context.Background(), request.Want)
		peers, errTunnel := h.Tunnel()
		answer.Changes, answer.Tunnel = changes, peers
		if err := errors.Join(err, errTunnel); err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			panic(err)
		}
	}
}

// remote is the test's side of a process that is a host.
type remote struct {
	name     string
	ns       netns.NsHandle
	kernel   *netlink.Handle
	requests *gob.Encoder
	answers  *gob.Decoder
}

func newRemote(t *testing.T, name string) *remote {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), roleEnv+"="+name, isolatedEnv+"=")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	fatal(t, err)
	out, err := command.StdoutPipe()
	fatal(t, err)
	fatal(t, command.Start())
	t.Cleanup(func() {
		in.Close()
		_ = command.Wait() // ends with its input, at the latest with the context of the test
	})
	ns, err := netns.GetFromPid(command.Process.Pid)
	fatal(t, err)
	return &remote{name: name, ns: ns, kernel: handleAt(t, ns), requests: gob.NewEncoder(in), answers: gob.NewDecoder(out)}
}

func (r *remote) apply(t *testing.T, request hostRequest) hostAnswer {
	t.Helper()
	fatal(t, r.requests.Encode(request))
	var answer hostAnswer
	fatal(t, r.answers.Decode(&answer))
	if answer.Error != "" {
		t.Fatalf("%s: %s", r.name, answer.Error)
	}
	return answer
}

// ---- namespaces without a process ----

func handleAt(t *testing.T, ns netns.NsHandle) *netlink.Handle {
	t.Helper()
	kernel, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	fatal(t, err)
	t.Cleanup(kernel.Close)
	return kernel
}

// newNamespace creates a network namespace that ends with the test.
func newNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		if err != nil {
			panic(err)
		}
		made <- ns
	}()
	ns := <-made
	t.Cleanup(func() { ns.Close() })
	inside(t, ns, func() error { return up("lo") })
	return ns
}

// inside runs a function on a thread in a namespace. Sockets opened there stay there.
func inside(t *testing.T, ns netns.NsHandle, do func() error) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			failed <- err
			return
		}
		failed <- do()
	}()
	fatal(t, <-failed)
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
