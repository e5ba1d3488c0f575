// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"liqo.io/liqo/playground/internal/image/oci"
)

// Unpack writes the files below dir, which becomes the root directory of their programs. Files with a path that leads out of dir are
// refused (complete), or by tar.
func (d *Debian) Unpack(ctx context.Context, dir string) error {
	files, err := oci.Complete(d.Files)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("unpack Debian packages: %w", err)
	}
	command := exec.CommandContext(ctx, "tar", "--extract", "--no-same-owner", "--directory", dir)
	in, out := io.Pipe()
	command.Stdin = in
	written := make(chan error, 1)
	go func() {
		err := oci.WriteLayer(out, files)
		written <- errors.Join(err, out.CloseWithError(err))
	}()
	ran := run(command)
	_ = in.CloseWithError(io.ErrClosedPipe) // if tar ended early, the writer must not wait for it
	if err := errors.Join(ran, <-written); err != nil {
		return fmt.Errorf("unpack Debian packages in %s: %w", dir, err)
	}
	return nil
}
