// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"liqo.io/liqo/deployments/liqo"
)

// packChart writes the chart in folder as an archive that Helm installs. Helm's own `package` writes the present time into it.
func packChart(folder, file string, at time.Time) error {
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressed)
	// The list of files is that of the chart which liqoctl carries, without tests.
	err := fs.WalkDir(liqo.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join("liqo", name), Mode: 0o644, Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX,
		}); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, packed.Bytes(), 0o644)
}
