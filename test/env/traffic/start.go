// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
)

// Start starts command traffic at a place and waits for its first line, which it prints when it is ready.
func Start(t testing.TB, b *env.Env, at netns.Place, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := at.Command(filepath.Join(b.Bin, "traffic"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("%s at %s does not start: %v", args[0], at.Name, cmd.Wait())
	}
	return cmd, lines
}
