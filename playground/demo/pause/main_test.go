// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary pause: with the variable set, it does what main
// does and reports when it listens.
func TestMain(m *testing.M) {
	if os.Getenv("PAUSE_UNDER_TEST") != "" {
		signals := listen()
		fmt.Println("listening")
		pause(signals)
		return
	}
	os.Exit(m.Run())
}

// TestEndsOnSignal also sends SIGCHLD first, which must not end it.
func TestEndsOnSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), "PAUSE_UNDER_TEST=1")
		process.Stderr = os.Stderr
		out, err := process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("output %q: %v", line, err)
		}
		if err := process.Process.Signal(syscall.SIGCHLD); err != nil {
			t.Fatal(err)
		}
		if err := process.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := process.Wait(); err != nil {
			t.Errorf("%v: ended with %v, want exit code 0", signal, err)
		}
	}
}

// TestReap makes two children and reaps them, running and ended.
func TestReap(t *testing.T) {
	reap() // no children: must return
	ended, running := exec.Command("true"), exec.Command("sleep", "60")
	for _, child := range []*exec.Cmd{ended, running} {
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; reap() {
		if err := syscall.Kill(ended.Process.Pid, 0); err == syscall.ESRCH {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the ended child is still there after 10s")
		}
	}
	if err := syscall.Kill(running.Process.Pid, syscall.SIGKILL); err != nil {
		t.Errorf("the running child is gone: %v", err)
	}
	if err := running.Wait(); err == nil {
		t.Error("killed child reports success")
	}
}
