// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/internal/kube/kubetest"
)

// receiver is copy.sh as the pod that receives, in a folder of its own, with a program in the place of sshd that waits for its end.
type receiver struct {
	t    *testing.T
	root string
	cmd  *exec.Cmd
	// force is what sshd runs for each command of a client.
	force string
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	dash, err := exec.LookPath("dash")
	if err != nil {
		t.Skip("SKIPPED: there is no dash, which runs the script in a pod")
	}
	r := &receiver{t: t, root: t.TempDir()}
	for _, dir := range []string{"bin", "etc", "run", "tmp", "data"} {
		if err := os.Mkdir(filepath.Join(r.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.NewReplacer("/etc/", r.root+"/etc/", "/run/", r.root+"/run/", "/root ", r.root+"/root ", "/tmp", r.root+"/tmp", "/usr/sbin/sshd", r.root+"/bin/sshd",
		"/data\n", r.root+"/data\n").Replace(script)
	body := "#!/bin/sh\necho $$ >" + r.root + "/run/sshd.pid\nexec sleep 3600\n"
	if err := os.WriteFile(filepath.Join(r.root, "bin", "sshd"), []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(dash, "-c", text, "copy.sh", "serve")
	r.cmd.Env = []string{"PATH=/usr/bin:/bin", "PORT=1"}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) })
	kubetest.Eventually(t, "sshd is started", func() error {
		if pid, err := os.ReadFile(filepath.Join(r.root, "run", "sshd.pid")); err != nil || len(pid) == 0 {
			return fmt.Errorf("it has written %q: %w", pid, err)
		}
		return nil
	})
	for _, line := range strings.Split(r.read("run/sshd_config"), "\n") {
		if force, is := strings.CutPrefix(strings.TrimSpace(line), "ForceCommand "); is {
			r.force = force
		}
	}
	return r
}

func (r *receiver) read(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// client returns a program that does what ssh does with the client's key: it has the receiver run its forced command.
func (r *receiver) client() string {
	r.t.Helper()
	name := filepath.Join(r.root, "bin", "ssh")
	body := "#!/bin/sh\nshift $#\nexport SSH_ORIGINAL_COMMAND=other\n" + r.force + "\n"
	if err := os.WriteFile(name, []byte(body), 0o755); err != nil {
		r.t.Fatal(err)
	}
	return name
}

// TestAttackNM6Receiver: who has the key of the client can write into the target of a move, and cannot read from it; after the verification, no client reaches it.
func TestAttackNM6Receiver(t *testing.T) {
	r := startReceiver(t)
	if config := r.read("run/rsyncd.conf"); !strings.Contains(config, "write only = yes") {
		t.Errorf("the module can be read:\n%s", config)
	}
	r.copies(t)
	end := exec.CommandContext(t.Context(), "dash", "-c", r.force)
	end.Env = []string{"PATH=/usr/bin:/bin", "SSH_ORIGINAL_COMMAND=end"}
	if output, err := end.CombinedOutput(); err != nil {
		t.Errorf("the end: %v, %s", err, output)
	}
	if err := r.ended(); err != nil {
		t.Errorf("after the verification: %v; the pod must succeed, so that a later pass has another one", err)
	}
}

// TestReceiverIsStopped: the end of its pod ends the server as well, and a server that fails is started again.
func TestReceiverIsStopped(t *testing.T) {
	r := startReceiver(t)
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.ended(); err == nil {
		t.Error("it succeeded, although nothing was verified")
	}
}

// ended waits until the script has ended.
func (r *receiver) ended() error {
	r.t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		r.t.Fatal("sshd goes on")
		return nil
	}
}

// copies plays the passes of a move, and a client that reads.
func (r *receiver) copies(t *testing.T) {
	t.Helper()
	rsync, err := exec.LookPath("rsync")
	if err != nil || os.Getuid() != 0 {
		t.Log("SKIPPED in part: the copy itself needs rsync, and root for its chroot")
		return
	}
	source := filepath.Join(r.root, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "secret"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		output, err := exec.CommandContext(t.Context(), rsync, append([]string{"--rsh=" + r.client()}, args...)...).CombinedOutput()
		return string(output), err
	}
	mirror := []string{"--archive", "--hard-links", "--sparse", "--one-file-system", "--numeric-ids", "--inplace", "--delete"}
	if output, err := run(append(mirror, "--stats", source+"/", "root@target::data/")...); err != nil {
		t.Fatalf("a pass: %v, %s", err, output)
	}
	for _, more := range [][]string{{"--checksum", "--out-format=differs:%i:%n"}, {"--checksum", "--dry-run", "--itemize-changes"}} {
		if output, err := run(append(append(mirror, more...), source+"/", "root@target::data/")...); err != nil || strings.Contains(output, "secret") {
			t.Errorf("the verification %v: %v, %s", more, err, output)
		}
	}
	if text := r.read("data/secret"); text != "data" {
		t.Errorf("the target has %q", text)
	}
	stolen := filepath.Join(r.root, "stolen")
	if output, err := run("--archive", "root@target::data/secret", stolen); err == nil {
		t.Errorf("a client reads from the target: %s", output)
	}
	if _, err := os.Stat(stolen); err == nil {
		t.Error("a client has a file of the target")
	}
	if output, err := run("root@target::"); err != nil || strings.Contains(output, "data") {
		t.Errorf("a client lists the modules: %v, %s", err, output)
	}
}
