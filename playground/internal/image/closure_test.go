// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/image/oci"
)

// elfFile makes a 64-bit ELF file that holds nothing but what it links to.
func elfFile(machine elf.Machine, interpreter string, needed ...string) oci.Content {
	const headerSize, segmentSize, sectionSize = 64, 56, 64
	names := []byte{0}
	var dynamic []elf.Dyn64
	for _, library := range needed {
		tag := elf.DT_NEEDED
		if path, ok := strings.CutPrefix(library, "runpath:"); ok {
			tag, library = elf.DT_RUNPATH, path
		}
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(tag), Val: uint64(len(names))})
		names = append(append(names, library...), 0)
	}
	dynamic = append(dynamic, elf.Dyn64{Tag: int64(elf.DT_NULL)})
	interp := append([]byte(interpreter), 0)

	interpAt := uint64(headerSize + segmentSize)
	namesAt := interpAt + uint64(len(interp))
	dynamicAt := namesAt + uint64(len(names))
	sectionsAt := dynamicAt + uint64(16*len(dynamic))

	header := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: headerSize, Phentsize: segmentSize, Shentsize: sectionSize,
		Phoff: headerSize, Shoff: sectionsAt, Shnum: 3, Shstrndx: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	segment := elf.Prog64{Type: uint32(elf.PT_NULL), Off: interpAt, Filesz: uint64(len(interp)), Memsz: uint64(len(interp))}
	if interpreter != "" {
		segment.Type = uint32(elf.PT_INTERP)
	}
	header.Phnum = 1
	sections := []elf.Section64{
		{},
		{Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		{Type: uint32(elf.SHT_DYNAMIC), Off: dynamicAt, Size: uint64(16 * len(dynamic)), Link: 1, Entsize: 16},
	}
	var out bytes.Buffer
	for _, part := range []any{header, segment, interp, names, dynamic, sections} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			panic(err) // a bug of this function
		}
	}
	return oci.Inline(out.String())
}

const (
	x86    = elf.EM_X86_64
	ldPath = "/lib64/ld-linux-x86-64.so.2"
)

func program(path string, needed ...string) oci.File {
	return oci.Regular(path, 0o755, elfFile(x86, ldPath, needed...))
}

func library(path string, needed ...string) oci.File {
	return oci.Regular(path, 0o644, elfFile(x86, "", needed...))
}

// libc looks like Debian 12's: files under the old top-level names, the dynamic
// linker as an absolute symlink into another directory.
var libc = []oci.File{
	oci.Dir("/lib64", 0o755),
	oci.Symlink(ldPath, "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
	library("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
	library("/lib/x86_64-linux-gnu/libc.so.6", "ld-linux-x86-64.so.2"),
	oci.Regular("/usr/lib/x86_64-linux-gnu/gconv/BIG5.so", 0o644, oci.Inline("not wanted")),
}

// text prints a closure one file per line: path, and target of a symlink.
func text(files []oci.File) string {
	var out strings.Builder
	for _, file := range files {
		out.WriteString(file.Path)
		if file.Mode.Type() == fs.ModeSymlink {
			out.WriteString(" -> " + file.Target)
		}
		if file.Mode.IsDir() {
			out.WriteString("/")
		}
		out.WriteString("\n")
	}
	return out.String()
}

type pack struct {
	id    string
	files []oci.File
}

func TestClosure(t *testing.T) {
	for name, test := range map[string]struct {
		packages []pack
		sel      Selection
		want     string
		owners   string
	}{
		"static program": {
			packages: []pack{
				{"box=1", []oci.File{oci.Regular("/bin/box", 0o755, elfFile(x86, ""))}},
				{"libc6=2", libc},
			},
			sel: Selection{Programs: []string{"/bin/box"}},
			want: `/bin -> usr/bin
/lib -> usr/lib
/sbin -> usr/sbin
/usr/bin/box
/usr/lib/
/usr/sbin/
`,
			owners: "box=1",
		},
		"libraries of libraries, versioned symlinks, old top-level directories": {
			packages: []pack{
				{"tool=1", []oci.File{
					program("/bin/tool", "libfoo.so.1", "libc.so.6"),
					oci.Symlink("/sbin/tool", "/bin/tool"),
					oci.Regular("/usr/share/doc/tool/copyright", 0o644, oci.Inline("long text")),
				}},
				{"libfoo1=3", []oci.File{
					oci.Symlink("/usr/lib/x86_64-linux-gnu/libfoo.so.1", "libfoo.so.1.2.3"),
					library("/usr/lib/x86_64-linux-gnu/libfoo.so.1.2.3", "libbar.so.0"),
				}},
				{"libbar0=4", []oci.File{library("/lib/x86_64-linux-gnu/libbar.so.0", "libfoo.so.1")}}, // a circle
				{"unused=9", []oci.File{library("/usr/lib/x86_64-linux-gnu/libunused.so.0")}},
				{"libc6=2", libc},
			},
			sel: Selection{Programs: []string{"/sbin/tool"}},
			want: `/bin -> usr/bin
/lib -> usr/lib
/lib64 -> usr/lib64
/sbin -> usr/sbin
/usr/bin/tool
/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
/usr/lib/x86_64-linux-gnu/libbar.so.0
/usr/lib/x86_64-linux-gnu/libc.so.6
/usr/lib/x86_64-linux-gnu/libfoo.so.1 -> libfoo.so.1.2.3
/usr/lib/x86_64-linux-gnu/libfoo.so.1.2.3
/usr/lib64/ld-linux-x86-64.so.2 -> /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
/usr/sbin/tool -> /bin/tool
`,
			owners: "libbar0=4 libc6=2 libfoo1=3 tool=1",
		},
		"run path, wrong architecture passed over, extras with alternatives": {
			packages: []pack{
				{"tool=1", []oci.File{
					program("/usr/bin/tool", "libprivate.so", "runpath:$ORIGIN/../lib/tool"),
					library("/usr/lib/tool/libprivate.so", "libwide.so"),
				}},
				{"wide=1", []oci.File{
					oci.Regular("/usr/lib/x86_64-linux-gnu/libwide.so", 0o644, elfFile(elf.EM_386, "")),
					library("/usr/lib/libwide.so"),
				}},
				{"conf=1", []oci.File{
					oci.Regular("/usr/share/conf/a", 0o644, oci.Inline("a")),
					oci.Regular("/usr/share/conf/sub/b", 0o644, oci.Inline("b")),
					oci.Regular("/usr/share/other", 0o644, oci.Inline("c")),
				}},
				{"libc6=2", libc},
			},
			sel: Selection{
				Programs: []string{"/bin/tool"},
				Extras:   []Extra{{"/etc/conf", "/usr/share/conf", "/usr/share/other"}, {"/lib/*/libc.so.6"}},
			},
			want: `/bin -> usr/bin
/lib -> usr/lib
/lib64 -> usr/lib64
/sbin -> usr/sbin
/usr/bin/tool
/usr/lib/libwide.so
/usr/lib/tool/libprivate.so
/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
/usr/lib/x86_64-linux-gnu/libc.so.6
/usr/lib64/ld-linux-x86-64.so.2 -> /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
/usr/sbin/
/usr/share/conf/a
/usr/share/conf/sub/b
`,
			owners: "conf=1 libc6=2 tool=1 wide=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files, owners, err := overlay(test.packages).closure(test.sel)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(files); got != test.want {
				t.Errorf("files:\n%swant:\n%s", got, test.want)
			}
			if got := strings.Join(owners, " "); got != test.owners {
				t.Errorf("packages %q, want %q", got, test.owners)
			}
			if _, err := oci.Complete(append(files, oci.Skeleton()...)); err != nil {
				t.Errorf("an image cannot hold these files: %v", err)
			}
		})
	}
}

func overlay(packages []pack) *tree {
	all := newTree()
	for _, p := range packages {
		for _, file := range p.files {
			all.add(p.id, file)
		}
	}
	return all
}

func TestClosureRefuses(t *testing.T) {
	tool := program("/usr/bin/tool", "libmissing.so.1")
	for name, test := range map[string]struct {
		packages []pack
		sel      Selection
		contains []string
	}{
		"no such program": {[]pack{{"libc6=2", libc}}, Selection{Programs: []string{"/usr/bin/none"}}, []string{"/usr/bin/none", "not exist"}},
		"library missing": {
			[]pack{{"t=1", []oci.File{tool}}, {"libc6=2", libc}},
			Selection{Programs: []string{"/usr/bin/tool"}},
			[]string{"/usr/bin/tool", "libmissing.so.1", "package missing"},
		},
		"no dynamic linker": {[]pack{{"t=1", []oci.File{tool}}}, Selection{Programs: []string{"/usr/bin/tool"}}, []string{"dynamic linker", "/usr/lib64"}},
		"script": {
			[]pack{{"t=1", []oci.File{oci.Regular("/usr/bin/s", 0o755, oci.Inline("#!/bin/sh\n"))}}},
			Selection{Programs: []string{"/usr/bin/s"}},
			[]string{"/usr/bin/s", "not an ELF"},
		},
		"directory": {[]pack{{"libc6=2", libc}}, Selection{Programs: []string{"/lib/x86_64-linux-gnu"}}, []string{"directory"}},
		"symlinks in a circle": {
			[]pack{{"t=1", []oci.File{oci.Symlink("/usr/bin/a", "b"), oci.Symlink("/usr/bin/b", "a")}}},
			Selection{Programs: []string{"/usr/bin/a"}},
			[]string{"more than 40 symlinks"},
		},
		"in two packages": {
			[]pack{{"a=1", []oci.File{program("/bin/x")}}, {"b=1", []oci.File{program("/usr/bin/x")}}, {"libc6=2", libc}},
			Selection{Programs: []string{"/usr/bin/x"}},
			[]string{"a=1", "b=1"},
		},
		"extra missing": {[]pack{{"libc6=2", libc}}, Selection{Extras: []Extra{{"/etc/a", "/etc/b"}}}, []string{"/etc/a or /etc/b"}},
		"damaged ELF": {
			[]pack{{"t=1", []oci.File{oci.Regular("/usr/bin/d", 0o755, oci.Inline(elf.ELFMAG+"cut"))}}},
			Selection{Programs: []string{"/usr/bin/d"}},
			[]string{"/usr/bin/d", "ELF file"},
		},
	} {
		_, _, err := overlay(test.packages).closure(test.sel)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, word := range test.contains {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: error %q does not mention %q", name, err, word)
			}
		}
	}
}
