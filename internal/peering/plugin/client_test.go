// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/kube/kubetest"
)

// example is the program of examples/resourceplugin, as a process.
type example struct {
	program, file, address string
	process                *exec.Cmd
	lines                  chan string
}

func newExample(t *testing.T) *example {
	t.Helper()
	dir := t.TempDir()
	e := &example{program: filepath.Join(dir, "resourceplugin"), file: filepath.Join(dir, "grant.json"), address: "127.0.0.1:0"}
	if output, err := exec.Command("go", "build", "-o", e.program, "liqo.io/liqo/examples/resourceplugin").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	return e
}

// grant replaces the file in one step, as the program reads it at any time.
func (e *example) grant(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(e.file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(e.file+".new", e.file); err != nil {
		t.Fatal(err)
	}
}

func (e *example) start(t *testing.T) {
	t.Helper()
	e.process = exec.Command(e.program, "--listen", e.address, "--file", e.file)
	e.process.Stderr = os.Stderr
	output, err := e.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.process.Process.Kill() })
	lines := make(chan string, 10)
	e.lines = lines
	go func() {
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	e.address = strings.TrimPrefix(e.expect(t, "listening on "), "listening on ")
}

func (e *example) expect(t *testing.T, prefix string) string {
	t.Helper()
	select {
	case line := <-e.lines:
		if !strings.HasPrefix(line, prefix) {
			t.Fatalf("the example printed %q, want %q", line, prefix)
		}
		return line
	case <-time.After(kubetest.InTime):
		t.Fatalf("the example did not print %q", prefix)
		return ""
	}
}

func (e *example) stop(t *testing.T) {
	t.Helper()
	if err := e.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = e.process.Wait() // killed
}

func TestAgainstTheExample(t *testing.T) {
	e := newExample(t)
	e.grant(t, `{"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}`)
	e.start(t)
	client, err := New(e.address, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	changes, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		client.Watch(ctx, func(id string) { changes <- id })
	}()
	untilChanged := func(want string) {
		t.Helper()
		select {
		case got := <-changes:
			if got != want {
				t.Fatalf("changed: %q, want %q", got, want)
			}
		case <-time.After(kubetest.InTime):
			t.Fatalf("no notification of a change of %q", want)
		}
	}
	cpu := func(want string) {
		t.Helper()
		list, err := client.Read(t.Context(), "rome")
		if err != nil {
			t.Fatal(err)
		}
		if got := list[corev1.ResourceCPU]; got.String() != want || len(list) != 3 {
			t.Fatalf("read %v, want cpu %s", list, want)
		}
	}
	untilChanged("")
	cpu("4")
	e.grant(t, `{"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}`)
	untilChanged("rome")
	cpu("2")

	e.stop(t)
	if _, err := client.Read(t.Context(), "rome"); err == nil {
		t.Fatal("a plugin that does not run answered")
	}
	e.grant(t, `{"cpu": "1", "memory": "8Gi", "nvidia.com/gpu": "1"}`)
	e.start(t) // at the same address
	untilChanged("")
	cpu("1")

	if err := client.Remove(t.Context(), "rome"); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "removed rome")
	cancel()
	select {
	case <-done:
	case <-time.After(kubetest.InTime):
		t.Error("Watch did not end with its context")
	}
}

func TestReadHasADeadline(t *testing.T) {
	client, err := New("192.0.2.1:1", "", 50*time.Millisecond) // nothing answers at this address
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Read(t.Context(), "rome"); status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Unavailable {
		t.Errorf("error %v, want DeadlineExceeded", err)
	}
}

func TestParse(t *testing.T) {
	if _, err := parse(map[string]string{"cpu": "1500m", "nvidia.com/gpu": "1", "memory": "64Gi"}); err != nil {
		t.Error(err)
	}
	many := map[string]string{}
	for i := range maxResources + 1 {
		many[strings.Repeat("a", i+1)] = "1"
	}
	for name, answer := range map[string]map[string]string{
		"negative": {"cpu": "-1"}, "empty": {"cpu": ""}, "no number": {"cpu": "lots"}, "no name": {"": "1"}, "bad name": {"a b": "1"}, "too many": many,
	} {
		if _, err := parse(answer); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: error %v, want ErrAnswer", name, err)
		}
	}
}

// FuzzParse: each answer of a plugin is an error or amounts that a node can have.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1", "1500m", "64Gi", "1e300", "-0", "1.5.5", "0x1", "", "９", "1Ki1"} {
		f.Add("cpu", seed)
		f.Add("example.com/thing", seed)
	}
	f.Fuzz(func(t *testing.T, name, quantity string) {
		list, err := parse(map[string]string{name: quantity})
		if err != nil {
			if !errors.Is(err, ErrAnswer) || len(err.Error()) > 2000 {
				t.Errorf("error %v", err)
			}
			return
		}
		for name, quantity := range list {
			if quantity.Sign() < 0 || name == "" {
				t.Errorf("%s: %s", name, quantity.String())
			}
		}
	})
}
