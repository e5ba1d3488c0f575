// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// epoch is the time of everything we write: no clock in an image.
var epoch = time.Unix(0, 0).UTC()

// errFiles is wrapped by every refusal of an image's file list.
var errFiles = errors.New("image files do not fit together")

// Complete returns the files sorted by path, with missing parent directories added.
// It refuses paths that are relative or unclean, listed twice, or below something
// that is not a directory.
func Complete(files []File) ([]File, error) {
	byPath := make(map[string]File, len(files))
	for _, file := range files {
		if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path || file.Path == "/" {
			return nil, fmt.Errorf("%w: %q; want an absolute, clean path below /", errFiles, file.Path)
		}
		if _, twice := byPath[file.Path]; twice {
			return nil, fmt.Errorf("%w: %s is listed twice", errFiles, file.Path)
		}
		if kind := file.Mode.Type(); kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink {
			return nil, fmt.Errorf("%w: %s is %s; only regular files, directories and symlinks are supported",
				errFiles, file.Path, kind)
		}
		if (file.Mode.Type() == fs.ModeSymlink) != (file.Target != "") {
			return nil, fmt.Errorf("%w: %s has mode %s and target %q; a target belongs to a symlink and only there",
				errFiles, file.Path, file.Mode, file.Target)
		}
		byPath[file.Path] = file
	}
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "/"; dir = path.Dir(dir) {
			parent, listed := byPath[dir]
			if listed && !parent.Mode.IsDir() {
				return nil, fmt.Errorf("%w: %s lies below %s, which is %s and not a directory",
					errFiles, file.Path, dir, parent.Mode)
			}
			if !listed {
				byPath[dir] = Dir(dir, 0o755)
			}
		}
	}
	// Sorting by path puts a directory before what is in it.
	return slices.SortedFunc(maps.Values(byPath), func(a, b File) int { return strings.Compare(a.Path, b.Path) }), nil
}

// WriteLayer writes completed files as an uncompressed layer: import then is one copy.
func WriteLayer(w io.Writer, files []File) error {
	archive := tar.NewWriter(w)
	for _, file := range files {
		if err := writeEntry(archive, file); err != nil {
			return fmt.Errorf("layer entry %s: %w", file.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("end of layer: %w", err)
	}
	return nil
}

func writeEntry(archive *tar.Writer, file File) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(file.Path, "/"),
		Mode:    tarMode(file.Mode),
		ModTime: epoch,
	}
	switch file.Mode.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		return archive.WriteHeader(header)
	case fs.ModeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, file.Target
		return archive.WriteHeader(header)
	}
	return file.Content.With(func(content *io.SectionReader) error {
		header.Typeflag, header.Size = tar.TypeReg, content.Size()
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.Copy(archive, content)
		return err
	})
}

// tarMode are the twelve permission bits in the numbers of tar.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
