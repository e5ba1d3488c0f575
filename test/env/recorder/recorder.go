// SPDX-License-Identifier: Apache-2.0

// Package recorder starts command history beside a test, writes the actions of the test into the history, and checks it at the end. Pods that
// have the template of this package leave a record that does not depend on an API server.
//
// It knows what package env knows, and the input and output of commands history and stamp. Proof: test/faults and test/soak, which use it.
package recorder

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// Marker and Answer are the input and output of command history.
type Marker struct {
	Kind  string   `json:"kind"`
	Cause string   `json:"cause,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
	Names []string `json:"names,omitempty"`
}

// Answer is what command history answers to a marker.
type Answer struct {
	Took  float64 `json:"took"`
	Seen  string  `json:"seen"`
	Agree bool    `json:"agree"`
}

// Report is what the check of a history found.
type Report struct {
	Violations []struct{ Law, Subject, Detail string }
	Converged  map[string]float64 // seconds until the clusters agreed after a cause, by its name
	Lag        float64            // longest difference without a cause, in seconds
	Gaps       []string
	Count      map[string]int
}

// Recorder is command history while it records.
type Recorder struct {
	Done chan error // how the command ended

	env  *env.Env
	to   io.WriteCloser
	from *bufio.Scanner
	file string
}

// Needed are the files below bin that pods and recorder need.
var Needed = []string{"history", "stamp-image.tar"}

// Ready returns an error if a needed file is missing.
func Ready(e *env.Env) error {
	for _, name := range Needed {
		if _, err := os.Stat(filepath.Join(e.Bin, name)); err != nil {
			return fmt.Errorf("bin/%s is missing (%w); run: make faults", name, err)
		}
	}
	return nil
}

// Subject is what to record: the pods of a consumer that run in providers.
type Subject struct {
	File      string // of the history; empty: one below bin/failures, which stays only if the test fails
	Namespace string // of the consumer; empty: all
	Consumer  *env.Cluster
	Providers []*env.Cluster
}

// Start records until the test ends at the latest.
func Start(t *testing.T, e *env.Env, of Subject) *Recorder {
	t.Helper()
	r := &Recorder{env: e, file: of.File, Done: make(chan error, 1)}
	if r.file == "" {
		r.file = filepath.Join(e.Bin, "failures", "history-"+strings.ReplaceAll(t.Name(), "/", "-")+".jsonl")
		if err := os.MkdirAll(filepath.Dir(r.file), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Log("the history is kept; to check it again: bin/history check", r.file)
			} else if err := os.Remove(r.file); err != nil {
				t.Error(err)
			}
		})
	}
	var kubeconfigs, nodes []string
	for _, p := range of.Providers {
		kubeconfigs, nodes = append(kubeconfigs, p.Kubeconfig()), append(nodes, "liqo-"+p.Name)
	}
	cmd := exec.Command(filepath.Join(e.Bin, "history"), "record", "--consumer", of.Consumer.Kubeconfig(), "--provider", strings.Join(kubeconfigs, ","),
		"--namespace", of.Namespace, "--node", strings.Join(nodes, ","), "--to", r.file)
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
	go func() { r.Done <- cmd.Wait() }()
	r.to, r.from = to, bufio.NewScanner(from)
	r.from.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		_, _ = to.Close(), from.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
	})
	return r
}

// Write writes a marker into the history and waits for the answer.
func (r *Recorder) Write(m Marker) (reply Answer, err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return reply, err
	}
	if _, err := r.to.Write(append(text, '\n')); err != nil {
		return reply, fmt.Errorf("the recorder does not read: %w", err)
	}
	if !r.from.Scan() {
		return reply, fmt.Errorf("the recorder does not answer (%w)", r.from.Err())
	}
	if err := json.Unmarshal(r.from.Bytes(), &reply); err != nil {
		return reply, fmt.Errorf("the recorder answered %q: %w", r.from.Text(), err)
	}
	return reply, nil
}

// Check ends the record and checks it against the laws; a broken one fails the test.
func (r *Recorder) Check(t *testing.T, converge, lag time.Duration) (found Report) {
	t.Helper()
	if _, err := r.Write(Marker{Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.Done:
		if err != nil {
			t.Fatalf("the recorder: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the recorder does not end")
	}
	result := execution.Run("", filepath.Join(r.env.Bin, "history"), "check", "--converge", converge.String(), "--lag", lag.String(), r.file)
	t.Logf("the history %s:\n%s", r.file, result.Out)
	if result.Code != 0 {
		t.Errorf("%s", result.Err)
	}
	if err := json.Unmarshal([]byte(result.Out), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// Pod is the spec of a pod template: the messages of command stamp prove which containers ran. Pods with tokens have some to be refreshed.
func Pod(policy, args string, tokens bool) string {
	return fmt.Sprintf(`
      restartPolicy: %s
      automountServiceAccountToken: %t
      terminationGracePeriodSeconds: 2
      volumes: [{name: own, emptyDir: {}}]
      containers:
      - name: main
        image: "localhost/stamp:dev"
        imagePullPolicy: Never
        args: [%s]
        volumeMounts: [{name: own, mountPath: /own}]
        env:
        - {name: FOR_POD, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
`, policy, tokens, args)
}
