// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"liqo.io/liqo/playground/internal/image/oci"
)

// errPackaged is wrapped by every refusal of a Packaged.
var errPackaged = errors.New("image of Debian packages is not described well")

// Packaged describes an image of programs that Debian packages, with all they link to and nothing else.
type Packaged struct {
	Name     string
	Packages []string // their dependencies are fetched too
	// Programs are absolute paths, in the packages or their dependencies; the first is what the image runs. None:
	// the program in /usr/bin that is called like the first package.
	Programs []string
	Files    []string // what no program links to: absolute paths, path.Match patterns, or directories with all below them
}

// Selection is what has to be fetched for it.
func (p Packaged) Selection() (Selection, error) {
	if _, err := oci.Tag(p.Name); err != nil {
		return Selection{}, err
	}
	if len(p.Packages) == 0 {
		return Selection{}, fmt.Errorf("%w: no package", errPackaged)
	}
	for _, name := range p.Packages {
		// apt takes more than names, options among it.
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" || strings.HasPrefix(name, "-") {
			return Selection{}, fmt.Errorf("%w: %q is no name of a package", errPackaged, name)
		}
	}
	for _, program := range slices.Concat(p.Programs, p.Files) {
		if !path.IsAbs(program) || path.Clean(program) != program {
			return Selection{}, fmt.Errorf("%w: file %q; write its absolute path, such as /usr/bin/%s", errPackaged, program, path.Base(program))
		}
	}
	extras := []Extra{{"/usr/lib/*/libgcc_s.so.1"}}
	for _, file := range p.Files {
		extras = append(extras, Extra{file})
	}
	return Selection{
		// The two are there for the same reasons as in ToolsSelection.
		Packages: append(slices.Clone(p.Packages), "libgcc-s1", "usr-is-merged"),
		Programs: p.programs(),
		Extras:   extras,
	}, nil
}

func (p Packaged) programs() []string {
	if len(p.Programs) == 0 {
		return []string{"/usr/bin/" + p.Packages[0]}
	}
	return p.Programs
}

// Image is the image, from what Fetch made of the Selection. It runs as NonRoot.
func (p Packaged) Image(debian *Debian) oci.Image {
	list := strings.Join(debian.Packages, "\n") + "\n"
	return oci.Image{
		Name:       p.Name,
		Entrypoint: p.programs()[:1],
		Env:        []string{oci.SearchPath},
		User:       oci.NonRoot,
		WorkDir:    "/",
		Labels:     map[string]string{packagesLabel: strings.Join(debian.Packages, " ")},
		Files:      append(append(oci.Skeleton(), oci.Regular(packagesFile, 0o644, oci.Inline(list))), debian.Files...),
	}
}
