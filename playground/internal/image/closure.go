// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"liqo.io/liqo/playground/internal/image/oci"
)

// Selection is what an image takes from Debian packages: programs with all they link
// to, and further files named one by one. Everything else in the packages stays out.
type Selection struct {
	Packages []string // their dependencies are fetched too
	Programs []string // absolute paths
	Extras   []Extra
	// BusyBox is the path of a static busybox among Programs; its applets become
	// symlinks in /busybox. Empty: none.
	BusyBox string
	// Hollow are path.Match patterns of 64-bit data libraries that a picked program
	// links to but never uses; their data is left out (hollow).
	Hollow []string
}

// Extra names files that no program links to: a path, a path.Match pattern, or a
// directory with all below it. Several are alternatives (a file that moved between
// releases); one must exist, and the first that does is taken.
type Extra []string

// libraryPath is where Debian's dynamic linker of a machine looks, in its order.
var libraryPath = map[elf.Machine][]string{
	elf.EM_X86_64:  {"/usr/lib/x86_64-linux-gnu", "/usr/lib", "/usr/lib64"},
	elf.EM_AARCH64: {"/usr/lib/aarch64-linux-gnu", "/usr/lib"},
}

// closure picks the files that sel names and, recursively, the dynamic linker, the shared
// libraries and the symlinks that picked files need. It returns the files and their packages
// ("name=version"), both sorted.
func (t *tree) closure(sel Selection) ([]oci.File, []string, error) {
	c := picking{tree: t, picked: map[string]oci.File{}, owners: map[string]bool{}}
	for _, program := range sel.Programs {
		linked, err := c.pick(program)
		if err != nil {
			return nil, nil, fmt.Errorf("program %s: %w", program, err)
		}
		if linked.machine == elf.EM_NONE {
			return nil, nil, fmt.Errorf("%w: program %s is not an ELF program; list it as an extra, with its interpreter as program",
				errTree, program)
		}
	}
	for _, extra := range sel.Extras {
		if err := c.pickExtra(extra); err != nil {
			return nil, nil, fmt.Errorf("extra %s: %w", strings.Join(extra, " or "), err)
		}
	}
	c.mergeUsr()
	files := slices.SortedFunc(maps.Values(c.picked), func(a, b oci.File) int { return strings.Compare(a.Path, b.Path) })
	if err := hollowOut(files, t, sel.Hollow); err != nil {
		return nil, nil, err
	}
	return files, slices.Sorted(maps.Keys(c.owners)), nil
}

// picking is the state of closure.
type picking struct {
	tree   *tree
	picked map[string]oci.File
	owners map[string]bool
}

// pick picks the file that name resolves to, the symlinks on its path, and all that it needs.
func (c *picking) pick(name string) (linkage, error) {
	physical, links, err := c.tree.resolve(name)
	if err != nil {
		return linkage{}, err
	}
	for _, location := range append(links, physical) {
		file, ok := c.tree.files[location]
		if !ok {
			return linkage{}, fmt.Errorf("%w: %s is a directory", errTree, location)
		}
		if len(file.others) > 0 {
			return linkage{}, fmt.Errorf("%w: %s is in %s and in %s; fetch only one of them",
				errTree, location, file.owner, strings.Join(file.others, ", "))
		}
		c.owners[file.owner] = true
		if location != physical {
			c.picked[location] = file.File
		}
	}
	linked, err := inspect(c.tree.files[physical].Content)
	if err != nil {
		return linkage{}, fmt.Errorf("%s: %w", physical, err)
	}
	if _, done := c.picked[physical]; done {
		return linked, nil
	}
	c.picked[physical] = c.tree.files[physical].File
	if linked.interpreter != "" {
		if _, err := c.pick(linked.interpreter); err != nil {
			return linkage{}, fmt.Errorf("dynamic linker of %s: %w", physical, err)
		}
	}
	for _, library := range linked.libraries {
		if err := c.pickLibrary(library, physical, linked); err != nil {
			return linkage{}, err
		}
	}
	return linked, nil
}

// pickLibrary finds library as the dynamic linker would for the file user.
func (c *picking) pickLibrary(library, user string, linked linkage) error {
	if strings.Contains(library, "/") {
		_, err := c.pick(library)
		return err
	}
	var dirs []string
	for _, dir := range linked.runPath {
		dirs = append(dirs, strings.NewReplacer("$ORIGIN", path.Dir(user), "${ORIGIN}", path.Dir(user)).Replace(dir))
	}
	dirs = append(dirs, libraryPath[linked.machine]...)
	for _, dir := range dirs {
		location := path.Join(dir, library)
		physical, _, err := c.tree.resolve(location)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		// The linker passes over a library of another architecture, so do we.
		if other, err := inspect(c.tree.files[physical].Content); err != nil || other.machine != linked.machine {
			continue
		}
		_, err = c.pick(location)
		return err
	}
	return fmt.Errorf("%w: %s needs %s, not found in %s; is a package missing?",
		errTree, user, library, strings.Join(dirs, ", "))
}

// pickExtra takes the first alternative that exists.
func (c *picking) pickExtra(extra Extra) error {
	for _, pattern := range extra {
		names, err := c.tree.match(pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := c.pick(name); err != nil {
				return err
			}
		}
		if len(names) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: none in the packages", errTree)
}

// mergeUsr adds the links of a merged /usr for those directories that are used, and
// always /bin, /sbin and /lib, whose absence surprises scripts.
func (c *picking) mergeUsr() {
	for _, top := range merged {
		used := top == "/bin" || top == "/sbin" || top == "/lib"
		for name := range c.picked {
			used = used || strings.HasPrefix(name, "/usr"+top+"/")
		}
		if used {
			c.picked[top] = oci.Symlink(top, "usr"+top)
			if dir := "/usr" + top; !c.hasBelow(dir) {
				c.picked[dir] = oci.Dir(dir, 0o755)
			}
		}
	}
}

func (c *picking) hasBelow(dir string) bool {
	for name := range c.picked {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// linkage is what an ELF file requires of the dynamic linker; zero for other files.
type linkage struct {
	machine     elf.Machine
	interpreter string
	libraries   []string
	runPath     []string
}

func inspect(content oci.Content) (linkage, error) {
	var linked linkage
	err := content.With(func(r *io.SectionReader) error {
		magic := make([]byte, len(elf.ELFMAG))
		if n, err := r.ReadAt(magic, 0); n < len(magic) || string(magic) != elf.ELFMAG {
			if err == io.EOF {
				err = nil
			}
			return err
		}
		file, err := elf.NewFile(r)
		if err != nil {
			return fmt.Errorf("ELF file: %w", err)
		}
		linked.machine = file.Machine
		for _, segment := range file.Progs {
			if segment.Type == elf.PT_INTERP {
				name, err := io.ReadAll(segment.Open())
				if err != nil {
					return fmt.Errorf("ELF interpreter: %w", err)
				}
				linked.interpreter = string(bytes.TrimRight(name, "\x00"))
			}
		}
		return linked.readDynamic(file)
	})
	return linked, err
}

// readDynamic reads libraries and search path; a static program has none.
func (l *linkage) readDynamic(file *elf.File) (err error) {
	if l.libraries, err = file.DynString(elf.DT_NEEDED); err != nil {
		return fmt.Errorf("ELF libraries: %w", err)
	}
	for _, kind := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		paths, err := file.DynString(kind)
		if err != nil {
			return fmt.Errorf("ELF run path: %w", err)
		}
		for _, p := range paths {
			l.runPath = append(l.runPath, strings.Split(p, ":")...)
		}
	}
	return nil
}
