// SPDX-License-Identifier: Apache-2.0

// Package guard ends the API servers of tests, also when the tests end without a word: a shell of its own waits for the end of a pipe.
//
// It knows processes and folders, and no Kubernetes. Proof: guard_test.go.
package guard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Guard owns the directory of one cluster. It ends the processes and removes the
// directory if the test process dies: after a panic, a test timeout or a kill, no
// t.Cleanup runs, and the children of envtest would run for ever.
//
// It is a shell that waits on a pipe. A line means that the cluster has been
// stopped; the end of the pipe without a line means that the test process died.
type Guard struct {
	dir   string
	shell *exec.Cmd
	pipe  io.WriteCloser
}

// envtest starts each program in its own process group. The script ignores the
// error of a signal to a group that has ended. It uses "-s KILL --" because dash
// accepts no "--" after "-KILL". It repeats the removal of the directory because
// a dying etcd may still write into it.
const guardScript = `
if read -r _; then exit 0; fi
for file in "$0"/*.pid; do kill -s KILL -- "-$(cat "$file")"; done 2>/dev/null
tries=0
until rm -rf "$0" 2>/dev/null || [ $tries -ge 100 ]; do tries=$((tries + 1)); sleep 0.1; done
`

// New starts the shell, with a directory of its own for what the servers write.
func New() (*Guard, error) {
	dir, err := os.MkdirTemp("", "liqo-kubetest-")
	if err != nil {
		return nil, err
	}
	shell := exec.Command("/bin/sh", "-c", guardScript, dir)
	// Ctrl-C goes to the whole foreground group; the guard must survive it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the guard of %s: %w", dir, err), os.RemoveAll(dir))
	}
	return &Guard{dir: dir, shell: shell, pipe: pipe}, nil
}

// Wrap returns a program that writes its process id and its output to the
// guard's directory and executes the named program of dir. envtest does not
// expose the process ids. It asks each program for its help before each start,
// to find flags of old releases: a quarter of a second for both, so that the
// answer is nothing, and start sets what envtest would have found. Go's collector
// starts at a size that few of them reach: they live for seconds.
func (g *Guard) Wrap(dir, name string) (string, error) {
	program, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	base := filepath.Join(g.dir, name)
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --help ] && exit\necho $$ >%[2]s.pid\nexport GOGC=off GOMEMLIMIT=640MiB\nexec %[1]s \"$@\" >%[2]s.log 2>&1\n",
		quote(program), quote(base))
	return base, writeProgram(base, script)
}

// writeProgram writes a file that is executed next. A program that another goroutine starts meanwhile would inherit the open file until it is
// executed itself, and Linux executes no file that is open for writing (ETXTBSY): so none is started.
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o700)
}

func (g *Guard) MakeDir(name string) (string, error) {
	path := filepath.Join(g.dir, name)
	return path, os.Mkdir(path, 0o700)
}

// Logs returns the last output of etcd and kube-apiserver.
func (g *Guard) Logs() string {
	const keep = 2000
	var all strings.Builder
	for _, name := range []string{"etcd", "kube-apiserver"} {
		text, err := os.ReadFile(filepath.Join(g.dir, name+".log"))
		if err != nil {
			fmt.Fprintf(&all, "--- %s wrote nothing: %v\n", name, err)
			continue
		}
		fmt.Fprintf(&all, "--- %s\n%s\n", name, text[max(0, len(text)-keep):])
	}
	return all.String()
}

// Kill ends all processes with SIGKILL: the data of this etcd is not needed any
// more, and an API server that gets SIGTERM waits for each open watch.
func (g *Guard) Kill() error {
	files, err := filepath.Glob(filepath.Join(g.dir, "*.pid"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		group, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("process id in %s: %w", file, err)
		}
		if err := syscall.Kill(-group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process group %d of %s: %w", group, file, err)
		}
	}
	return nil
}

// Release ends the guard after the cluster was stopped.
func (g *Guard) Release() error {
	_, err := io.WriteString(g.pipe, "stopped\n")
	return errors.Join(err, g.pipe.Close(), g.shell.Wait(), os.RemoveAll(g.dir))
}

// quote makes one shell word of a path.
func quote(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
