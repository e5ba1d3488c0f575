// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// marker and answer are the input and output of command history.
type marker struct {
	Kind  string   `json:"kind"`
	Cause string   `json:"cause,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
	Names []string `json:"names,omitempty"`
}

type answer struct {
	Took  float64 `json:"took"`
	Seen  string  `json:"seen"`
	Agree bool    `json:"agree"`
}

type recorder struct {
	to   io.WriteCloser
	from *bufio.Scanner
	file string
	done chan error
}

// record starts the recorder; it ends with the test at the latest.
func record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{file: *kept, done: make(chan error, 1)}
	if r.file == "" {
		r.file = filepath.Join(t.TempDir(), "history.jsonl")
	}
	cmd := exec.Command(filepath.Join(clusters.Bin, "history"), "record", "--consumer", rome.Kubeconfig(), "--provider", milan.Kubeconfig(),
		"--namespace", namespace, "--node", virtualNode, "--to", r.file)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, childOut, err := os.Pipe() // not StdoutPipe, which Wait closes before all is read
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = childOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = childOut.Close()
	go func() { r.done <- cmd.Wait() }()
	r.to, r.from = to, bufio.NewScanner(from)
	r.from.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		_, _ = to.Close(), from.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
	})
	return r
}

// write writes a marker into the history and waits for the answer.
func (r *recorder) write(t *testing.T, m marker) (reply answer) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.to.Write(append(text, '\n')); err != nil {
		t.Fatalf("the recorder does not read: %v", err)
	}
	if !r.from.Scan() {
		t.Fatalf("the recorder does not answer: %v", r.from.Err())
	}
	if err := json.Unmarshal(r.from.Bytes(), &reply); err != nil {
		t.Fatalf("the recorder answered %q: %v", r.from.Text(), err)
	}
	return reply
}

// check checks the history, and that it contains the objects that the test created: an empty history violates no law.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			t.Fatalf("the recorder: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the recorder does not end")
	}
	result := env.Execute("", filepath.Join(clusters.Bin, "history"), "check", "--converge", outage.String(), "--lag", outage.String(), r.file)
	t.Logf("the history %s:\n%s", r.file, result.Out)
	if result.Code != 0 {
		t.Errorf("%s", result.Err)
	}
	var report struct {
		Converged map[string]float64
		Lag       float64
		Count     map[string]int
	}
	if err := json.Unmarshal([]byte(result.Out), &report); err != nil {
		t.Fatal(err)
	}
	clusters.Measure("history: longest difference between the clusters without a cause", "%.1f s (target %v)", report.Lag, lagTarget)
	for what, want := range map[string]int{
		"Pods in the consumer": podCount(), "Pods in the provider": podCount(), "ShadowPods in the provider": podCount(), "runs of containers": podCount() + *each,
		"containers with observed processes": podCount(), "termination messages of runs": 3 * *each,
	} {
		if got := report.Count[what]; got < want {
			t.Errorf("the history has %d %s, want at least %d", got, what, want)
		}
		clusters.Measure("history: "+what, "%d", report.Count[what])
	}
}
