// SPDX-License-Identifier: Apache-2.0

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"liqo.io/liqo/playground/internal/image/oci"
)

// merged are the top-level directories that are symlinks into /usr on a merged-usr
// system. Packages still ship files under the old names; images must have each file
// once, under /usr, as on an installed Debian.
var merged = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"}

// errTree is wrapped by every problem with the files of a package set.
var errTree = errors.New("package files")

// tree is the files of several packages, laid over each other in the merged-usr
// layout as if installed. Pure: contents are described, not read.
type tree struct {
	files map[string]packaged // by physical path
	dirs  map[string]bool
}

type packaged struct {
	oci.File
	owner  string // package, "name=version"
	others []string
}

func newTree() *tree {
	return &tree{files: map[string]packaged{}, dirs: map[string]bool{"/": true}}
}

// mergedPath is where a package's path lies physically.
func mergedPath(p string) string {
	for _, top := range merged {
		if p == top || strings.HasPrefix(p, top+"/") {
			return "/usr" + p
		}
	}
	return p
}

// add lays one file of a package over the tree. Directories are only noted: the
// image makes those it needs.
func (t *tree) add(owner string, file oci.File) {
	if slices.Contains(merged, file.Path) && file.Mode.Type() == fs.ModeSymlink {
		return // the package that merges /usr ships these links; we make our own
	}
	file.Path = mergedPath(file.Path)
	for dir := file.Path; dir != "/"; dir = path.Dir(dir) {
		if dir != file.Path || file.Mode.IsDir() {
			t.dirs[dir] = true
		}
	}
	if file.Mode.IsDir() {
		return
	}
	if first, taken := t.files[file.Path]; taken {
		first.others = append(first.others, owner)
		t.files[file.Path] = first
		return
	}
	t.files[file.Path] = packaged{File: file, owner: owner}
}

// maxHops is the kernel's limit for symlinks in one lookup.
const maxHops = 40

// resolve follows name as the kernel would: it returns the physical path of what is
// there and every symlink on the way, all of which the image needs too.
func (t *tree) resolve(name string) (real string, links []string, err error) {
	current, rest := "/", strings.Split(name, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		next := mergedPath(path.Join(current, part))
		file, isFile := t.files[next]
		switch {
		case isFile && file.Mode.Type() == fs.ModeSymlink:
			if links = append(links, next); len(links) > maxHops {
				return "", nil, fmt.Errorf("%w: %s: more than %d symlinks", errTree, name, maxHops)
			}
			if path.IsAbs(file.Target) {
				current = "/"
			}
			rest = append(strings.Split(file.Target, "/"), rest...)
		case isFile && len(rest) > 0:
			return "", nil, fmt.Errorf("%w: %s: %s is not a directory", errTree, name, next)
		case isFile || t.dirs[next]:
			current = next
		default:
			return "", nil, fmt.Errorf("%w: %s: %s %w", errTree, name, next, fs.ErrNotExist)
		}
	}
	return current, links, nil
}

// match returns the sorted physical paths that pattern (see path.Match) names; for a
// directory, everything below it.
func (t *tree) match(pattern string) ([]string, error) {
	pattern = mergedPath(pattern)
	var found []string
	for name := range t.files {
		for at := name; at != "/"; at = path.Dir(at) {
			ok, err := path.Match(pattern, at)
			if err != nil {
				return nil, fmt.Errorf("%w: pattern %s: %w", errTree, pattern, err)
			}
			if ok {
				found = append(found, name)
				break
			}
		}
	}
	slices.Sort(found)
	return found, nil
}
