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

// mark and answer are what command history reads and prints.
type mark struct {
	Kind  string   `json:"kind"`
	What  string   `json:"what,omitempty"`
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
	over chan error
}

// record starts the recorder; it ends with the test at the latest.
func record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{file: *kept, over: make(chan error, 1)}
	if r.file == "" {
		r.file = filepath.Join(t.TempDir(), "history.jsonl")
	}
	cmd := exec.Command(filepath.Join(clusters.Bin, "history"), "record", "--here", rome.Kubeconfig(), "--there", milan.Kubeconfig(),
		"--namespace", namespace, "--node", virtualNode, "--to", r.file)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirs, err := os.Pipe() // not one that Wait closes before all is read
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	go func() { r.over <- cmd.Wait() }()
	r.to, r.from = to, bufio.NewScanner(from)
	r.from.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		_, _ = to.Close(), from.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
	})
	return r
}

// say writes a mark into the history and waits for the answer.
func (r *recorder) say(t *testing.T, m mark) (said answer) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.to.Write(append(text, '\n')); err != nil {
		t.Fatalf("the recorder does not listen: %v", err)
	}
	if !r.from.Scan() {
		t.Fatalf("the recorder does not answer: %v", r.from.Err())
	}
	if err := json.Unmarshal(r.from.Bytes(), &said); err != nil {
		t.Fatalf("the recorder said %q: %v", r.from.Text(), err)
	}
	return said
}

// judge lets the history be checked, and wants it to hold what the test has done.
func (r *recorder) judge(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.over:
		if err != nil {
			t.Fatalf("the recorder: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the recorder does not end")
	}
	said := env.Execute("", filepath.Join(clusters.Bin, "history"), "check", "--converge", converge.String(), r.file)
	t.Logf("the history %s:\n%s", r.file, said.Out)
	if said.Code != 0 {
		t.Errorf("%s", said.Err)
	}
	var report struct {
		Converged map[string]float64
		Count     map[string]int
	}
	if err := json.Unmarshal([]byte(said.Out), &report); err != nil {
		t.Fatal(err)
	}
	// An empty history breaks no law.
	for what, want := range map[string]int{
		"Pods here": wished(), "Pods there": wished(), "ShadowPods there": wished(), "runs of containers": wished() + *each,
		"containers of which processes were seen": wished(), "last words of runs": 3 * *each,
	} {
		if got := report.Count[what]; got < want {
			t.Errorf("the history has %d %s, want at least %d", got, what, want)
		}
		clusters.Measure("history: "+what, "%d", report.Count[what])
	}
}
