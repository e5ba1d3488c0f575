// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"liqo.io/liqo/playground/internal/image/oci"
)

// binaryFile puts an ELF file on disk and returns its path.
func binaryFile(t *testing.T, name string, content oci.Content) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(read(t, content)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCatalogue(t *testing.T) {
	static := elfFile(elf.EM_AARCH64, "")
	binaries := Binaries{
		Pause: binaryFile(t, "pause", static), CoreDNS: binaryFile(t, "coredns", static),
		MetricsServer: binaryFile(t, "metrics-server", static), Demo: binaryFile(t, "demo", static),
	}
	for name, test := range map[string]struct {
		image      func(Binaries) (oci.Image, error)
		entrypoint string
	}{
		PauseName:         {Pause, "/usr/bin/pause"},
		CoreDNSName:       {CoreDNS, "/usr/bin/coredns"},
		MetricsServerName: {MetricsServer, "/usr/bin/metrics-server"},
		DemoName:          {Demo, "/usr/bin/demo"},
	} {
		img, err := test.image(binaries)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if img.Name != name || !slices.Equal(img.Entrypoint, []string{test.entrypoint}) || img.User != "65532:65532" || img.Architecture != "arm64" {
			t.Errorf("%s: got %s %v as %s for %s", name, img.Name, img.Entrypoint, img.User, img.Architecture)
		}
		if got := text(img.Files); !strings.Contains(got, test.entrypoint+"\n") || !strings.Contains(got, "/etc/passwd\n") || !strings.Contains(got, "/tmp/\n") {
			t.Errorf("%s: files are\n%s", name, got)
		}
		digestOf(t, img)
	}
}

func TestStaticBinaryRefuses(t *testing.T) {
	for name, content := range map[string]oci.Content{
		"dynamic":         elfFile(x86, ldPath, "libc.so.6"),
		"script":          oci.Inline("#!/bin/sh\n"),
		"empty":           {},
		"unknown machine": elfFile(elf.EM_RISCV, ""),
	} {
		if _, err := StaticBinary("h.local/x:1", binaryFile(t, "x", content)); !errors.Is(err, errBinary) {
			t.Errorf("%s: error %v, want %v", name, err, errBinary)
		}
	}
	if _, err := StaticBinary("h.local/x:1", filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing binary: %v", err)
	}
}

func TestToolsRecordsPackages(t *testing.T) {
	img := Tools(&Debian{Packages: []string{"curl=7", "dash=1"}, Files: []oci.File{program("/usr/bin/dash")}})
	if got := img.Labels["playground.local/packages"]; got != "curl=7 dash=1" {
		t.Errorf("label is %q", got)
	}
	found := false
	for _, file := range img.Files {
		if file.Path == "/etc/playground-packages" {
			found = read(t, file.Content) == "curl=7\ndash=1\n"
		}
	}
	if !found {
		t.Error("/etc/playground-packages is missing or wrong")
	}
	before := digestOf(t, img)
	if after := digestOf(t, Tools(&Debian{Packages: []string{"curl=8", "dash=1"}, Files: []oci.File{program("/usr/bin/dash")}})); before == after {
		t.Error("another package version gave the same digest")
	}
}

// digestOf writes an image, and returns its digest.
func digestOf(t *testing.T, img oci.Image) digest.Digest {
	t.Helper()
	id, err := oci.Write(io.Discard, img)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
