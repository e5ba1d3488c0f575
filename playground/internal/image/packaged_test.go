// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/image/oci"
)

func TestPackaged(t *testing.T) {
	for name, test := range map[string]struct {
		ask        Packaged
		entrypoint string
	}{
		"called like its package": {Packaged{Name: "h.local/redis:1", Packages: []string{"redis-server"}}, "/usr/bin/redis-server"},
		"programs that are named": {
			Packaged{Name: "h.local/redis:1", Packages: []string{"redis-server", "redis-tools"}, Programs: []string{"/usr/bin/redis-server", "/usr/bin/redis-cli"}},
			"/usr/bin/redis-server",
		},
		"files beside it": {
			Packaged{Name: "h.local/redis:1", Packages: []string{"redis-server"}, Files: []string{"/usr/share/redis/*.conf"}},
			"/usr/bin/redis-server",
		},
	} {
		selection, err := test.ask.Selection()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if files := len(selection.Extras) - 1; files != len(test.ask.Files) {
			t.Errorf("%s: %d further files, want %v", name, files, test.ask.Files)
		}
		if !slices.Contains(selection.Packages, "redis-server") || selection.Programs[0] != test.entrypoint {
			t.Errorf("%s: selection is %+v", name, selection)
		}
		debian := &Debian{Packages: []string{"libc6=2", "redis-server=7"}, Files: []oci.File{oci.Regular(test.entrypoint, 0o755, elfFile(elf.EM_X86_64, ""))}}
		img := test.ask.Image(debian)
		if !slices.Equal(img.Entrypoint, []string{test.entrypoint}) || img.User != oci.NonRoot || img.Labels[packagesLabel] != "libc6=2 redis-server=7" {
			t.Errorf("%s: image is %+v", name, img)
		}
		if got := text(img.Files); !strings.Contains(got, test.entrypoint+"\n") ||
			!strings.Contains(got, "/etc/passwd\n") || !strings.Contains(got, packagesFile+"\n") {
			t.Errorf("%s: files are\n%s", name, got)
		}
		first := digestOf(t, img)
		if again := digestOf(t, test.ask.Image(debian)); first != again {
			t.Errorf("%s: the same files gave %s and %s", name, first, again)
		}
	}
}

func TestPackagedRefuses(t *testing.T) {
	for name, ask := range map[string]Packaged{
		"no package":       {Name: "h.local/x:1"},
		"option of apt":    {Name: "h.local/x:1", Packages: []string{"--purge"}},
		"version":          {Name: "h.local/x:1", Packages: []string{"redis-server=7"}},
		"empty name":       {Name: "h.local/x:1", Packages: []string{""}},
		"relative file":    {Name: "h.local/x:1", Packages: []string{"x"}, Files: []string{"x"}},
		"relative program": {Name: "h.local/x:1", Packages: []string{"x"}, Programs: []string{"x"}},
	} {
		if _, err := ask.Selection(); !errors.Is(err, errPackaged) {
			t.Errorf("%s: error %v, want %v", name, err, errPackaged)
		}
	}
	if _, err := (Packaged{Name: "redis", Packages: []string{"redis-server"}}).Selection(); !errors.Is(err, oci.ErrName) {
		t.Errorf("name without host: error %v, want %v", err, oci.ErrName)
	}
}
