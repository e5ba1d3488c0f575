// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Programs can be executed as soon as they are written, while other goroutines start programs.
func TestWriteProgram(t *testing.T) {
	folder := t.TempDir()
	var all errgroup.Group
	for i := range 8 {
		all.Go(func() error {
			for j := range 100 {
				path := filepath.Join(folder, strconv.Itoa(i)+"-"+strconv.Itoa(j))
				if err := writeProgram(path, "#!/bin/sh\n"); err != nil {
					return err
				}
				if err := exec.Command(path).Run(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}
