// SPDX-License-Identifier: Apache-2.0

// Package execution runs a program to its end, and keeps how it ended.
//
// It knows nothing of clusters. Proof: every suite below test/, whose commands run by it.
package execution

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Result is how a program ended.
type Result struct {
	Args     string
	Out, Err string
	Code     int
	Took     time.Duration
}

func (r Result) String() string {
	return fmt.Sprintf("%s\n      exit code %d after %v\n      stdout: %s\n      stderr: %s",
		r.Args, r.Code, r.Took.Round(time.Millisecond), strings.TrimSpace(r.Out), strings.TrimSpace(r.Err))
}

// Run runs a program to its end, for at most five minutes.
func Run(stdin, name string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &stderr
	start := time.Now()
	err := cmd.Run()
	r := Result{Args: filepath.Base(name) + " " + strings.Join(args, " "), Out: out.String(), Err: stderr.String(), Took: time.Since(start)}
	if err != nil {
		r.Code = 255
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
			r.Code = cmd.ProcessState.ExitCode()
		} else {
			r.Err += err.Error()
		}
	}
	return r
}
