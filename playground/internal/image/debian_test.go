// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/image/oci"
)

func TestParseURIs(t *testing.T) {
	got, err := parseURIs(`
'http://mirror.example/pool/main/c/curl/curl_7.88.1-10%2bdeb12u15_amd64.deb' curl_7.88.1-10+deb12u15_amd64.deb 315764 SHA256:ab01
'http://mirror.example/pool/main/b/bind9/bind9-libs_9.18.49-1_amd64.deb' bind9-libs_1%3a9.18.49-1~deb12u3_amd64.deb 1185996 MD5Sum:00ff
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []debArchive{
		{name: "bind9-libs", version: "1:9.18.49-1~deb12u3", file: "bind9-libs_1%3a9.18.49-1~deb12u3_amd64.deb", size: 1185996},
		{name: "curl", version: "7.88.1-10+deb12u15", file: "curl_7.88.1-10+deb12u15_amd64.deb", size: 315764, sha256: "ab01"},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{"", "E: nonsense", "'x' y", "'x' a_1_amd64.deb many", "'x' a.deb 3", "'x' ../a_1_amd64.deb 3", "'x' a_%zz_amd64.deb 3"} {
		if _, err := parseURIs(text); !errors.Is(err, errPlan) {
			t.Errorf("%q: error %v, want %v", text, err, errPlan)
		}
	}
}

func TestDamagedArchiveIsFound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.deb")
	if err := os.WriteFile(name, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of "abc", FIPS 180-2
	good := debArchive{name: "a", version: "1", size: 3, sha256: sum, path: name}
	if err := good.check(); err != nil {
		t.Errorf("good archive: %v", err)
	}
	if err := os.WriteFile(name, []byte("abd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := good.check(); !errors.Is(err, errDamaged) {
		t.Errorf("one bit flipped: %v, want %v", err, errDamaged)
	}
}

func TestListGivesContentsAsSections(t *testing.T) {
	name := filepath.Join(t.TempDir(), "data.tar")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	writer := tar.NewWriter(file)
	long := "./" + strings.Repeat("deep/", 40) + "file"
	for _, header := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/a", Mode: 0o4755, Size: 3},
		{Typeflag: tar.TypeReg, Name: long, Mode: 0o644, Size: 3},
		{Typeflag: tar.TypeLink, Name: "./usr/bin/b", Linkname: "./usr/bin/a", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "./usr/bin/c", Linkname: "a"},
	} {
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := io.WriteString(writer, header.Name[len(header.Name)-3:]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := list(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/usr/bin/a": "n/a", "/usr/bin/b": "n/a", strings.TrimPrefix(long, "."): "ile", "/usr/bin/c": "-> a"}
	if len(files) != len(want) {
		t.Fatalf("files %s, want %d", text(files), len(want))
	}
	for _, file := range files {
		got := "-> " + file.Target
		if file.Target == "" {
			got = read(t, file.Content)
		}
		if got != want[file.Path] {
			t.Errorf("%s holds %q, want %q", file.Path, got, want[file.Path])
		}
	}
}

func TestAppletLinks(t *testing.T) {
	links := appletLinks("[\nash\nbusybox\nip\nsh\nwget\n", "/bin/busybox")
	const want = "/busybox/[ -> /usr/bin/busybox\n/busybox/ip -> /usr/bin/busybox\n/busybox/wget -> /usr/bin/busybox\n"
	if got := text(links); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func read(t *testing.T, content oci.Content) string {
	t.Helper()
	var out []byte
	err := content.With(func(r *io.SectionReader) (err error) {
		out, err = io.ReadAll(r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
