// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"liqo.io/liqo/internal/storage/move/report"
)

// runScript runs copy.sh in a folder of its own, with a rsync that ends with an exit code, and returns what it leaves as its result.
func runScript(t *testing.T, mode string, code int) (string, error) {
	t.Helper()
	dash, err := exec.LookPath("dash")
	if err != nil {
		t.Skip("SKIPPED: there is no dash, which runs the script in a pod")
	}
	root := t.TempDir()
	text := strings.NewReplacer(
		"/dev/termination-log", root+"/result", "/etc/", root+"/etc/", "/run/", root+"/run/", "/root ", root+"/root ", "/tmp", root+"/tmp", "/keys/", root+"/keys/", "/data/", root+"/data/",
	).Replace(script)
	for _, dir := range []string{"bin", "etc", "run", "tmp"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range map[string]string{
		"ssh": "exit 0",
		"rsync": `printf 'Number of files: 10\nNumber of regular files transferred: 9\nTotal file size: 100\nTotal bytes sent: 90\nTotal bytes received: 5\n'
echo 'rsync warning: some files vanished before they could be transferred' >&2
exit ` + strconv.Itoa(code),
	} {
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), dash, "-c", text, "copy.sh", mode)
	cmd.Env = []string{"PATH=" + root + "/bin:/usr/bin:/bin", "TARGET=target", "PORT=1"}
	output, runs := cmd.CombinedOutput()
	result, err := os.ReadFile(root + "/result")
	if err != nil {
		t.Fatalf("the script left no result: %v, %s", err, output)
	}
	return string(result), runs
}

// TestVanishedFiles: while an application runs, a file can vanish during a pass, which rsync reports with exit code 24 after it has sent all others. The pass is a
// good one, because another one follows after the fence, where a missing file is an error.
func TestVanishedFiles(t *testing.T) {
	const vanished, partial = 24, 23
	for _, row := range []struct {
		mode string
		code int
		good bool
	}{
		{modeCopy, 0, true},
		{modeCopy, vanished, true},
		{modeCopy, partial, false},
		{modeFinish, 0, true},
		{modeFinish, vanished, false},
		{modeMeasure, vanished, true},
		{modeMeasure, partial, false},
	} {
		text, err := runScript(t, row.mode, row.code)
		var r report.Result
		switch good := err == nil; {
		case good != row.good:
			t.Errorf("mode %s, exit code %d of rsync: %v, %s", row.mode, row.code, err, text)
		case good && (json.Unmarshal([]byte(text), &r) != nil || r.All.Files != 10 || r.Verified != (row.mode == modeFinish)):
			t.Errorf("mode %s, exit code %d of rsync: result %s", row.mode, row.code, text)
		case !good && !strings.Contains(text, "exit code "+strconv.Itoa(row.code)):
			t.Errorf("mode %s: the result does not name exit code %d: %s", row.mode, row.code, text)
		}
	}
}
