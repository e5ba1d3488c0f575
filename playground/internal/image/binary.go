// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"

	"liqo.io/liqo/playground/internal/image/oci"
)

// errBinary is wrapped by every refusal of a binary.
var errBinary = errors.New("binary does not fit an image")

// goArchitecture are the machines we know, in Go's spelling.
var goArchitecture = map[elf.Machine]string{
	elf.EM_X86_64:  "amd64",
	elf.EM_AARCH64: "arm64",
}

// StaticBinary is the image called name of one static program of this machine: at
// /usr/bin/<base name>, as entrypoint, run as NonRoot from /. It refuses a program
// that needs a dynamic linker, because in such an image it would only fail with "no such
// file or directory". The architecture is read from the program.
func StaticBinary(name, binary string) (oci.Image, error) {
	architecture, err := staticArchitecture(binary)
	if err != nil {
		return oci.Image{}, fmt.Errorf("image %s: %w", name, err)
	}
	location := "/usr/bin/" + path.Base(binary)
	return oci.Image{
		Name:         name,
		Architecture: architecture,
		Entrypoint:   []string{location},
		Env:          []string{oci.SearchPath},
		User:         oci.NonRoot,
		WorkDir:      "/",
		Files:        append(oci.Skeleton(), oci.Regular(location, 0o755, oci.HostFile(binary))),
	}, nil
}

func staticArchitecture(binary string) (architecture string, err error) {
	err = oci.HostFile(binary).With(func(content *io.SectionReader) error {
		file, err := elf.NewFile(content)
		if err != nil {
			return fmt.Errorf("%w: %s is not an ELF program (%w); build it for Linux", errBinary, binary, err)
		}
		for _, segment := range file.Progs {
			if segment.Type == elf.PT_INTERP {
				return fmt.Errorf("%w: %s is dynamically linked; build it with CGO_ENABLED=0", errBinary, binary)
			}
		}
		var known bool
		if architecture, known = goArchitecture[file.Machine]; !known {
			return fmt.Errorf("%w: %s is for %s; supported are x86-64 and arm64", errBinary, binary, file.Machine)
		}
		return nil
	})
	return architecture, err
}
