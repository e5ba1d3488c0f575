// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// limit bounds every program that is run; those that wait have smaller limits of their own.
const limit = 5 * time.Minute

// process is a program that runs.
type process struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
	began    time.Time
	cancel   context.CancelFunc
	failed   error
}

// result is the output of a program that has ended.
type result struct {
	command  string
	out, err string
	code     int
	elapsed  time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("%s\n  exit code %d after %s\n  output: %s\n  errors: %s",
		r.command, r.code, r.elapsed.Round(time.Millisecond), strings.TrimSpace(r.out), strings.TrimSpace(r.err))
}

func start(argv ...string) *process { return startWith("", nil, argv...) }

// startWith starts a program with text as its input and variables added to its environment.
func startWith(stdin string, env []string, argv ...string) *process {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), began: time.Now(), cancel: cancel}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(stdin), &p.out, &p.err
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.WaitDelay = time.Second // a grandchild may hold the output open
	p.failed = p.cmd.Start()
	return p
}

// wait returns when the program has ended. Its exit code is -1 if it was killed or could
// not be started.
func (p *process) wait() result {
	defer p.cancel()
	err := p.failed
	if err == nil {
		err = p.cmd.Wait()
	}
	r := result{command: strings.Join(p.cmd.Args, " "), out: p.out.String(), err: p.err.String(), elapsed: time.Since(p.began)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
		if r.code < 0 {
			r.err += " (" + exit.Error() + ")"
		}
	case err != nil:
		r.code, r.err = -1, r.err+err.Error()
	}
	return r
}

func startPlayground(args ...string) *process { return start(append([]string{program}, args...)...) }

// pg runs the playground and returns its result, also that of a failure.
func pg(args ...string) result { return startPlayground(args...).wait() }

// must is pg for a command that must succeed; it returns the output.
func must(t testing.TB, args ...string) string {
	t.Helper()
	r := pg(args...)
	if r.code != 0 {
		t.Fatalf("%s", r)
	}
	return r.out
}

var changing sync.Mutex

// change is must for commands of which the playground allows one at a time. Checks run in parallel.
func change(t testing.TB, args ...string) {
	t.Helper()
	changing.Lock()
	defer changing.Unlock()
	must(t, args...)
}

// refuse expects the playground to refuse, with all the given words in its complaint.
func refuse(t testing.TB, words []string, args ...string) {
	t.Helper()
	r := pg(args...)
	if r.code == 0 {
		t.Errorf("was not refused: %s", r)
		return
	}
	for _, word := range words {
		if !strings.Contains(r.err, word) {
			t.Errorf("refused, but the complaint lacks %q: %s", word, r)
		}
	}
}

// eventually polls until the answer is good, and returns the time until then. The limit only guards
// against hanging. seen is part of the failure.
func eventually(t testing.TB, within time.Duration, what string, ask func() (seen string, good bool)) time.Duration {
	t.Helper()
	began := time.Now()
	for again := time.NewTicker(100 * time.Millisecond); ; {
		last := time.Since(began) > within // one more try after the limit: the machine may have stood still
		seen, good := ask()
		elapsed := time.Since(began)
		if good {
			again.Stop()
			return elapsed
		}
		if last {
			t.Fatalf("%s: not within %s; last seen: %s", what, within, seen)
		}
		<-again.C
	}
}

// always polls for the whole duration and fails at the first bad answer: it checks that something does
// not happen, which no event can prove.
func always(t testing.TB, during time.Duration, what string, ask func() (seen string, good bool)) {
	t.Helper()
	for began := time.Now(); time.Since(began) < during; {
		if seen, good := ask(); !good {
			t.Fatalf("%s: not so after %s; seen: %s", what, time.Since(began).Round(time.Millisecond), seen)
		}
	}
}

// conversation is a running program with its input and the lines of its output.
type conversation struct {
	in    io.WriteCloser
	lines chan string
	err   *bytes.Buffer
}

// converse starts a program; it is killed at the end of the test.
func converse(t testing.TB, argv ...string) conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c := conversation{lines: make(chan string, 1000), err: new(bytes.Buffer)}
	cmd.Stderr = c.err
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", strings.Join(argv, " "), err)
	}
	c.in = in
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(c.lines)
		scanLines(out, c.lines)
	}()
	t.Cleanup(func() {
		cancel()
		_ = in.Close()
		<-read
		_ = cmd.Wait() // it was killed
	})
	return c
}

// write writes text to the program.
func (c conversation) write(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(c.in, text); err != nil {
		t.Fatalf("write to the program: %v; its errors: %s", err, c.err)
	}
}

// waitForLine returns the first line that contains a word, or false after the limit.
func (c conversation) waitForLine(word string, within time.Duration) (string, bool) {
	for end := time.After(within); ; {
		select {
		case line, open := <-c.lines:
			if !open {
				return "", false
			}
			if strings.Contains(line, word) {
				return line, true
			}
		case <-end:
			return "", false
		}
	}
}
