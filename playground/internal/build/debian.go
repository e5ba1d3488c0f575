// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/image/oci"
)

// FromDebian writes the image of Debian packages to the file to. The packages are kept in the cache.
func (b Builder) FromDebian(ctx context.Context, ask image.Packaged, to string) (_ digest.Digest, err error) {
	selection, err := ask.Selection()
	if err != nil {
		return "", err
	}
	step := b.Progress.Step("build image " + ask.Name)
	defer func() { step.End(err) }()
	debian, err := image.Fetch(ctx, filepath.Join(b.Cache, "debian"), selection)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, debian.Close()) }()
	return oci.WriteFile(to, ask.Image(debian))
}
