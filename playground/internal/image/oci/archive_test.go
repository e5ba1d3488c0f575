// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func sample() Image {
	return Image{
		Name:         "playground.local/sample:1",
		Architecture: "amd64",
		Entrypoint:   []string{"/usr/bin/sample"},
		Env:          []string{SearchPath},
		User:         NonRoot,
		Labels:       map[string]string{"b": "2", "a": "1"},
		Files: append(Skeleton(),
			Regular("/usr/bin/sample", 0o755|fs.ModeSetuid, Inline("program")),
			Symlink("/usr/bin/alias", "sample"),
			Regular("/a/"+strings.Repeat("long/", 60)+"name", 0o600, Inline("x")),
			Regular("/empty", 0o644, Content{}),
		),
	}
}

func pack(t *testing.T, img Image) ([]byte, digest.Digest) {
	t.Helper()
	var out bytes.Buffer
	id, err := Write(&out, img)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), id
}

// entries reads a tar; headers by name, contents by name, and the names in order.
func entries(t *testing.T, data []byte) (map[string]*tar.Header, map[string][]byte, []string) {
	t.Helper()
	headers, contents, names := map[string]*tar.Header{}, map[string][]byte{}, []string{}
	for reader := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return headers, contents, names
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name], contents[header.Name] = header, content
		names = append(names, header.Name)
	}
}

// TestGoldenDigest holds the bytes we write: a change here means that every node
// imports every image again, so it must be meant.
func TestGoldenDigest(t *testing.T) {
	const want = "sha256:52c5415b378dc8510d5ebb8dd2685bd6448d783d3aab83266154fa689cb36d62"
	if _, id := pack(t, sample()); id != want {
		t.Errorf("digest of the sample image is %s, want %s; if the change is meant, put the new one here", id, want)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	first, firstID := pack(t, sample())
	again, againID := pack(t, sample())
	if !bytes.Equal(first, again) || firstID != againID {
		t.Error("writing twice gave different archives")
	}
	reversed := sample()
	slices.Reverse(reversed.Files)
	other, otherID := pack(t, reversed)
	if !bytes.Equal(first, other) || firstID != otherID {
		t.Error("the order of files changed the archive")
	}
	changed := sample()
	changed.Files[len(changed.Files)-1].Content = Inline("y")
	if _, id := pack(t, changed); id == firstID {
		t.Error("another content gave the same digest")
	}
}

func TestHostFileMetadataDoesNotMatter(t *testing.T) {
	var ids []digest.Digest
	for i, mode := range []fs.FileMode{0o600, 0o755} {
		name := filepath.Join(t.TempDir(), fmt.Sprint("copy", i))
		if err := os.WriteFile(name, []byte("same"), mode); err != nil {
			t.Fatal(err)
		}
		_, id := pack(t, Image{Name: "h.local/x:1", Files: []File{Regular("/x", 0o755, HostFile(name))}})
		ids = append(ids, id)
	}
	if ids[0] != ids[1] {
		t.Errorf("equal files with other names, times and modes gave %v", ids)
	}
}

func TestArchiveIsAnOCILayout(t *testing.T) {
	data, id := pack(t, sample())
	headers, parts, _ := entries(t, data)
	for name, header := range headers {
		if !header.ModTime.Equal(epoch) || header.Uid != 0 || header.Gid != 0 || header.Uname+header.Gname != "" {
			t.Errorf("%s carries time or owner of this machine: %+v", name, header)
		}
		if hash, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && digest.FromBytes(parts[name]).Encoded() != hash {
			t.Errorf("blob %s does not have that digest", name)
		}
	}
	if got := string(parts["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", got)
	}
	index := decode[ocispec.Index](t, parts["index.json"])
	if len(index.Manifests) != 1 || index.Manifests[0].Digest != id {
		t.Fatalf("index %+v does not name the returned digest %s", index, id)
	}
	want := map[string]string{"io.containerd.image.name": "playground.local/sample:1", "org.opencontainers.image.ref.name": "1"}
	for key, value := range want {
		if got := index.Manifests[0].Annotations[key]; got != value {
			t.Errorf("annotation %s is %q, want %q", key, got, value)
		}
	}
	manifest := decode[ocispec.Manifest](t, parts[blobName(id)])
	config := decode[ocispec.Image](t, parts[blobName(manifest.Config.Digest)])
	layer := parts[blobName(manifest.Layers[0].Digest)]
	if config.RootFS.DiffIDs[0] != digest.FromBytes(layer) || manifest.Layers[0].Size != int64(len(layer)) {
		t.Error("config and manifest do not describe the layer")
	}
	if config.OS != "linux" || config.Architecture != "amd64" || config.Config.User != NonRoot || config.Config.WorkingDir != "/" {
		t.Errorf("config is %+v", config)
	}
}

func TestLayer(t *testing.T) {
	data, id := pack(t, sample())
	_, parts, _ := entries(t, data)
	manifest := decode[ocispec.Manifest](t, parts[blobName(id)])
	headers, contents, names := entries(t, parts[blobName(manifest.Layers[0].Digest)])
	if !slices.Contains(names, "usr/") || slices.Index(names, "usr/") > slices.Index(names, "usr/bin/sample") {
		t.Errorf("parent directories are missing or late: %q", names)
	}
	for name, want := range map[string]struct {
		kind    byte
		mode    int64
		content string
		target  string
	}{
		"usr/bin/sample": {tar.TypeReg, 0o4755, "program", ""},
		"usr/bin/alias":  {tar.TypeSymlink, 0o777, "", "sample"},
		"tmp/":           {tar.TypeDir, 0o1777, "", ""},
		"usr/":           {tar.TypeDir, 0o755, "", ""},
		"empty":          {tar.TypeReg, 0o644, "", ""},
	} {
		header := headers[name]
		if header == nil {
			t.Errorf("layer has no %s", name)
			continue
		}
		if header.Typeflag != want.kind || header.Mode != want.mode || string(contents[name]) != want.content || header.Linkname != want.target {
			t.Errorf("%s is %c %o %q -> %q, want %+v", name, header.Typeflag, header.Mode, contents[name], header.Linkname, want)
		}
	}
}

func TestRefusedNames(t *testing.T) {
	for _, name := range []string{
		"", "demo", "demo:1", "playground/demo:1", "playground.local/demo", "playground.local/demo:",
		"playground.local:5000/demo", "playground.local/De mo:1", "playground.local/Demo:1", "playground.local//demo:1",
		"playground.local/demo@sha256:1", "playground.local/:1",
	} {
		if _, err := Write(io.Discard, Image{Name: name}); !errors.Is(err, ErrName) {
			t.Errorf("name %q: error %v, want %v", name, err, ErrName)
		}
	}
	for _, name := range []string{"localhost/liqo:dev", "localhost:5000/a/b:V1.2_3-x", "localhost/a:1"} {
		if _, err := Write(io.Discard, Image{Name: name}); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	for name, files := range map[string][]File{
		"relative":          {Regular("a", 0o644, Content{})},
		"unclean":           {Regular("/a/../b", 0o644, Content{})},
		"root":              {Dir("/", 0o755)},
		"twice":             {Regular("/a", 0o644, Content{}), Symlink("/a", "b")},
		"below a file":      {Regular("/a", 0o644, Content{}), Regular("/a/b", 0o644, Content{})},
		"below a symlink":   {Symlink("/bin", "usr/bin"), Regular("/bin/sh", 0o755, Content{})},
		"device":            {{Path: "/a", Mode: fs.ModeDevice}},
		"target of a file":  {{Path: "/a", Target: "b"}},
		"link without goal": {Symlink("/a", "")},
	} {
		if _, err := Write(io.Discard, Image{Name: "h.local/x:1", Files: files}); !errors.Is(err, errFiles) {
			t.Errorf("%s: error %v, want %v", name, err, errFiles)
		}
	}
}

// rewriter changes a file as soon as the archive begins to flow, as a build running
// meanwhile would: after the digest was taken, before the layer is written.
type rewriter struct {
	t    *testing.T
	name string
	text string
}

func (r rewriter) Write(p []byte) (int, error) {
	if err := os.WriteFile(r.name, []byte(r.text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return len(p), nil
}

func TestContentThatChangesIsAnError(t *testing.T) {
	// 200 kB in front of the changing file make the buffered archive flow in time.
	front := Regular("/a", 0o644, Inline(strings.Repeat("x", 200_000)))
	for name, text := range map[string]string{"same size": "after!", "longer": strings.Repeat("y", 10_000), "shorter": ""} {
		file := filepath.Join(t.TempDir(), "b")
		if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		img := Image{Name: "h.local/x:1", Files: []File{front, Regular("/b", 0o644, HostFile(file))}}
		if _, err := Write(rewriter{t, file, text}, img); !errors.Is(err, errChanged) {
			t.Errorf("%s: error %v, want %v", name, err, errChanged)
		}
	}
}

func TestWriteFileIsWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "a.tar")
	id, err := WriteFile(archive, sample())
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if want, wantID := pack(t, sample()); !bytes.Equal(before, want) || id != wantID {
		t.Error("WriteFile and Write differ")
	}
	broken := sample()
	broken.Files = append(broken.Files, Regular("/gone", 0o644, HostFile(filepath.Join(dir, "gone"))))
	if _, err := WriteFile(archive, broken); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing content gave %v", err)
	}
	after, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) || len(left) != 1 {
		t.Errorf("a refused image changed the old archive or left files behind: %v", left)
	}
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return value
}
