// SPDX-License-Identifier: Apache-2.0

package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// FindSource returns the playground's source directory: beside the program (it is built to
// bin/ of a checkout) or below the working directory.
func FindSource() (string, error) {
	var tried []string
	if exe, err := os.Executable(); err == nil {
		tried = append(tried, filepath.Join(filepath.Dir(exe), "..", "playground"))
	}
	if wd, err := os.Getwd(); err == nil {
		tried = append(tried, filepath.Join(wd, "playground"), wd)
	}
	for _, dir := range tried {
		if _, err := os.Stat(filepath.Join(dir, "components", "kube", "go.mod")); err == nil {
			return filepath.Clean(dir), nil
		}
	}
	return "", fmt.Errorf(
		"the playground builds its programs from source, and found none in %s; run it from a checkout (bin/playground) or give --source DIR",
		strings.Join(tried, ", "),
	)
}

// Key is the hash of all inputs of a component's programs: its files,
// its flags and the Go release. It is short enough for a directory name.
func Key(source string, c Component) (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s %s %s %q %t %q %q\n", runtime.Version(), runtime.GOARCH, c.Name, c.Packages, c.CGO, c.Tags, c.LDFlags)
	watch := c.Watch
	if len(watch) == 0 {
		watch = []string{c.Dir}
	}
	for _, dir := range watch {
		if err := hashDir(h, filepath.Join(source, dir)); err != nil {
			return "", fmt.Errorf("hash the source of component %s: %w", c.Name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashDir adds every file below dir that can reach a program; tests cannot.
func hashDir(h io.Writer, dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		if !d.Type().IsRegular() {
			return errors.New(path + " is no regular file")
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(h, "%s %d %x\n", rel, len(data), sha256.Sum256(data))
		return err
	})
}
