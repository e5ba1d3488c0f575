// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"liqo.io/liqo/playground/internal/image/oci"
)

// toolsBudget is the largest tools image we accept, in bytes.
const toolsBudget = 60_000_000

// TestTools builds the tools image from the machine's Debian release and runs each
// tool inside it, in namespaces of its own.
func TestTools(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: running the tools needs chroot, so root; run this test as root")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("SKIPPED: no cache directory for Debian packages: ", err)
	}
	debian, err := Fetch(t.Context(), filepath.Join(cache, "liqo-playground", "debian"), ToolsSelection())
	if errors.Is(err, ErrApt) {
		t.Skip("SKIPPED: the tools image needs a Debian mirror: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := debian.Close(); err != nil {
			t.Error(err)
		}
	}()
	img := Tools(debian)
	var archive bytes.Buffer
	id, err := oci.Write(&archive, img)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d bytes, from %d packages", id, archive.Len(), len(debian.Packages))
	if archive.Len() > toolsBudget {
		t.Errorf("tools image has %d bytes, budget %d; the largest files are:\n%s", archive.Len(), toolsBudget, largest(img.Files))
	}
	if again, err := oci.Write(io.Discard, Tools(debian)); err != nil || again != id {
		t.Errorf("second build gave %s, %v; want %s", again, err, id)
	}
	checkTools(t, unpackImage(t, img))
}

func checkTools(t *testing.T, root string) {
	for command, want := range map[string]string{
		"ip -V":               "ip utility, iproute2",
		"nft --version":       "nftables v",
		"curl --version":      "curl ",
		"iperf3 --version":    "iperf 3",
		"dig -v":              "DiG 9",
		"tc -V":               "tc utility",
		"ss -V":               "ss utility",
		"bridge -V":           "bridge utility",
		"sh -c 'ip -br link'": "lo ", // the real ip: busybox has no -br
		"sh -c 'ip route show table all && echo fine'": "fine",
		"ls -l /bin/sh":                 "sh -> dash",
		"ps -o pid,args":                "ps -o",
		"ping -c1 127.0.0.1":            "1 packets received",
		"nft list ruleset && echo done": "done",
		"nft add table ip t '{ chain c { tcp dport http counter; }; }'; nft list ruleset": "tcp dport 80",
		"cat /etc/playground-packages":           "iproute2=",
		"curl -sS file:///etc/services":          "http",
		"timeout 1 sleep infinity; echo $?":      "143",
		"/busybox/wget --help":                   "Usage: wget",
		"dig +time=1 +tries=1 @127.0.0.1 -p 9 x": "refused",
		// Threads that end need libgcc_s, which nothing links to.
		"iperf3 -s -1 >/dev/null & until iperf3 -c 127.0.0.1 -t 1; do sleep 0.1; done": "iperf Done",
	} {
		t.Run(command, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
			defer cancel()
			script := "mount -t proc proc /proc; ip link set lo up; " + command + " 2>&1"
			run := exec.CommandContext(ctx, "/bin/sh", "-c", script)
			run.Env = []string{oci.SearchPath}
			run.Dir = "/"
			run.SysProcAttr = &syscall.SysProcAttr{
				Chroot:     root,
				Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
			}
			out, err := run.CombinedOutput()
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: %v, output %q, want %q in it", command, err, out, want)
			}
		})
	}
}

// unpackImage writes the image's layer to a directory, as a container runtime does.
func unpackImage(t *testing.T, img oci.Image) string {
	t.Helper()
	files, err := oci.Complete(img.Files)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	if err := oci.WriteLayer(&layer, files); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for reader := tar.NewReader(&layer); ; {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(header.Name, "/")
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.Mkdir(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, name)
		case tar.TypeReg:
			err = unpackFile(root, name, header.FileInfo().Mode(), reader)
		default:
			t.Fatalf("%s is of tar type %q", name, header.Typeflag)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(root.Mkdir("proc", 0o755), root.Mkdir("dev", 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, minor := range map[string]int{"null": 3, "urandom": 9} {
		if err := syscall.Mknod(filepath.Join(dir, "dev", name), syscall.S_IFCHR|0o666, 1<<8|minor); err != nil {
			t.Fatalf("device %s: %v", name, err)
		}
	}
	return dir
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
