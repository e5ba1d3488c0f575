// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// farKubelet replaces the kubelet of the provider's node: it speaks the protocols of a kubelet, with the library of a kubelet, and runs commands as
// processes of this machine.
type farKubelet struct {
	server *httptest.Server
	echo   net.Listener
	// asked has the requests in order.
	mu    sync.Mutex
	asked []string
	// open counts the requests being served.
	open atomic.Int32
	// more sends one more line to a followed log.
	more chan string
}

func newFarKubelet(t *testing.T) *farKubelet {
	t.Helper()
	f := &farKubelet{more: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", f.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(
			w, r, f, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options, time.Minute, 30*time.Second,
			remotecommand.SupportedStreamingProtocols,
		)
	})
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeAttach(
			w, r, f, r.PathValue("pod"), "", r.PathValue("container"), options, time.Minute, 30*time.Second,
			remotecommand.SupportedStreamingProtocols,
		)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, f, r.PathValue("pod"), "", options, time.Minute, 30*time.Second, portforward.SupportedProtocols)
	})
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.String())
		f.mu.Unlock()
		f.open.Add(1)
		defer f.open.Add(-1)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.server.Close)
	var err error
	if f.echo, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.echo.Close() })
	go func() {
		for {
			connection, err := f.echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection) // until the other end closes
			}()
		}
	}()
	return f
}

func (f *farKubelet) port() int32 { return int32(f.server.Listener.Addr().(*net.TCPAddr).Port) }

// last returns the last request.
func (f *farKubelet) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) == 0 {
		return ""
	}
	return f.asked[len(f.asked)-1]
}

// longLog exceeds the limit on the answer of an ordinary request.
const longLog = 20 << 20

func (f *farKubelet) logs(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "log of", r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if r.URL.Query().Get("tailLines") == "77" {
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = 'x'
		}
		for range longLog / len(chunk) {
			_, _ = w.Write(chunk) // the client may be gone
		}
	}
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case line, open := <-f.more:
			if !open {
				return
			}
			fmt.Fprintln(w, line)
		}
	}
}

// exit is how a command ended.
type exit struct{ *exec.ExitError }

func (e exit) String() string  { return e.Error() }
func (e exit) ExitStatus() int { return e.ExitCode() }

// ExecInContainer runs the command here.
func (f *farKubelet) ExecInContainer(
	ctx context.Context, _, _, _ string, command []string, in io.Reader, out, errs io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	if command[0] == "terminal" {
		size := <-resize
		fmt.Fprintf(out, "tty=%t %dx%d\n", tty, size.Width, size.Height)
		return nil
	}
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	if in != nil {
		input, err := process.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(input, in) // until either ends
			_ = input.Close()
		}()
	}
	if out != nil {
		process.Stdout = out
	}
	if errs != nil {
		process.Stderr = errs
	}
	err := process.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return exit{failed}
	}
	return err
}

// AttachContainer echoes.
func (f *farKubelet) AttachContainer(
	_ context.Context, name, _, container string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	fmt.Fprintln(out, "attached to", name, container)
	if in != nil {
		_, err := io.Copy(out, in)
		return err
	}
	return nil
}

// PortForward connects every port to the echo server.
func (f *farKubelet) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	to, err := net.Dial("tcp", f.echo.Addr().String())
	if err != nil {
		return err
	}
	defer to.Close()
	fmt.Fprintln(stream, "port", strconv.Itoa(int(port)), "of", name)
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(to, stream); done <- struct{}{} }() // until either ends
	go func() { _, _ = io.Copy(stream, to); done <- struct{}{} }()
	<-done
	return nil
}
