// SPDX-License-Identifier: Apache-2.0

// Package oci writes a container image as an OCI layout archive without a container engine: its files, its layer and its
// configuration. The same input always gives the same digest, so it is known whether a node already has an image. It must not
// know where files come from. Proof: archive_test.go (layout, determinism, refusals).
package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Image describes one image: its name, what runs in it, and its files. Two equal
// values give byte-identical archives; the order of Files does not matter.
type Image struct {
	// Name is the full name with registry host and tag, e.g.
	// "playground.local/demo:1". A kubelet never finds a shorter name, because the
	// runtime expands it to a public registry.
	Name string
	// Architecture in Go's spelling ("amd64", "arm64"); empty means that of this
	// program.
	Architecture string

	Entrypoint []string
	Cmd        []string
	Env        []string // NAME=value
	// User is numeric ("65532:65532") wherever runAsNonRoot shall work: the kubelet
	// cannot judge a name.
	User    string
	WorkDir string // default "/"
	Labels  map[string]string
	Files   []File
}

// File is one path of an image. Parent directories that are not listed are made
// with mode 0755. Owner is always 0:0 and the time is fixed.
type File struct {
	Path string // absolute and clean
	// Mode holds the permission bits, with fs.ModeSetuid, ModeSetgid and ModeSticky
	// as wanted, and the kind: fs.ModeDir, fs.ModeSymlink, or none for a regular file.
	Mode    fs.FileMode
	Content Content // of a regular file
	Target  string  // of a symlink, relative or absolute inside the image
}

// Regular is a regular file.
func Regular(path string, mode fs.FileMode, content Content) File {
	return File{Path: path, Mode: mode &^ fs.ModeType, Content: content}
}

// Dir is a directory that needs another mode than 0755, or to exist though empty.
func Dir(path string, mode fs.FileMode) File {
	return File{Path: path, Mode: mode&^fs.ModeType | fs.ModeDir}
}

// Symlink is a symbolic link at path that points to target.
func Symlink(path, target string) File {
	return File{Path: path, Mode: fs.ModeSymlink | 0o777, Target: target}
}

// ErrName is wrapped by every refusal of an image name.
var ErrName = errors.New("image name is not usable")

// Tag checks name and returns its tag.
func Tag(name string) (string, error) {
	slash := strings.LastIndexByte(name, '/')
	colon := strings.LastIndexByte(name, ':')
	if colon <= slash || colon == len(name)-1 {
		return "", fmt.Errorf("%w: %q has no tag; write e.g. playground.local/demo:1", ErrName, name)
	}
	host, _, _ := strings.Cut(name, "/")
	if slash < 0 || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "", fmt.Errorf("%w: %q has no registry host, so a runtime would look for it in a public registry; "+
			"write e.g. playground.local/%s", ErrName, name, name)
	}
	for _, r := range name {
		if !isNameRune(r) {
			return "", fmt.Errorf("%w: %q contains %q; allowed are a-z, digits and . _ - / : (A-Z in the tag)", ErrName, name, r)
		}
	}
	if repository := name[:colon]; strings.ToLower(repository) != repository ||
		strings.Contains(repository, "//") || strings.Contains(name[slash:], "/:") {
		return "", fmt.Errorf("%w: %q: before the tag only lower-case, non-empty path parts are allowed", ErrName, name)
	}
	return name[colon+1:], nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:", r)
}
