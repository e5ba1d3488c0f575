// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"liqo.io/liqo/playground/internal/image/oci"
)

// errHollow marks a library whose data cannot be left out.
var errHollow = errors.New("library cannot be hollowed")

// hollow returns the shared library without the bulk of its largest read-only
// segment: the file shrinks, all addresses stay, and the missing part reads as zero.
// It is for data libraries that a program links to but never uses: the dynamic linker
// only needs them to exist. Section headers, which only tools read, go too.
func hollow(library *io.SectionReader) ([]byte, error) {
	header, segments, err := readSegments(library)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHollow, err)
	}
	data := largestData(segments)
	if data < 0 {
		return nil, fmt.Errorf("%w: no read-only data segment", errHollow)
	}
	// Offsets and addresses of a segment must stay equal modulo the alignment, so only
	// multiples of it can be cut, and one such page stays in front.
	bulk := segments[data]
	if bulk.Align == 0 || bulk.Off%bulk.Align != 0 || bulk.Filesz < 2*bulk.Align {
		return nil, fmt.Errorf("%w: data segment of %d bytes at %#x, alignment %#x", errHollow, bulk.Filesz, bulk.Off, bulk.Align)
	}
	from := bulk.Off + bulk.Align
	cut := (bulk.Filesz - bulk.Align) / bulk.Align * bulk.Align
	end := from
	for i, segment := range segments {
		switch {
		case i == data:
			segments[i].Filesz = bulk.Align
		case segment.Off >= from+cut:
			segments[i].Off -= cut
		case segment.Filesz > 0 && segment.Off+segment.Filesz > from:
			return nil, fmt.Errorf("%w: segment %d lies in the data that would be cut", errHollow, i)
		}
		end = max(end, segments[i].Off+segments[i].Filesz)
	}
	header.Shoff, header.Shnum, header.Shstrndx = 0, 0, 0

	out := make([]byte, end)
	if _, err := library.ReadAt(out[:from], 0); err != nil {
		return nil, fmt.Errorf("%w: %w", errHollow, err)
	}
	if _, err := library.ReadAt(out[from:], int64(from+cut)); err != nil {
		return nil, fmt.Errorf("%w: %w", errHollow, err)
	}
	if err := errors.Join(overwrite(out, header), overwrite(out[header.Phoff:], segments)); err != nil {
		return nil, fmt.Errorf("%w: %w", errHollow, err)
	}
	return out, nil
}

func readSegments(library *io.SectionReader) (elf.Header64, []elf.Prog64, error) {
	var header elf.Header64
	if err := binary.Read(io.NewSectionReader(library, 0, library.Size()), binary.LittleEndian, &header); err != nil {
		return header, nil, err
	}
	if string(header.Ident[:len(elf.ELFMAG)]) != elf.ELFMAG ||
		elf.Class(header.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(header.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return header, nil, errors.New("not a 64-bit little-endian ELF file")
	}
	segments := make([]elf.Prog64, header.Phnum)
	table := io.NewSectionReader(library, int64(header.Phoff), library.Size())
	return header, segments, binary.Read(table, binary.LittleEndian, segments)
}

// largestData is the index of the largest loaded read-only segment that is not code
// and not the first, which holds the linker's tables; -1 if there is none.
func largestData(segments []elf.Prog64) int {
	largest := -1
	for i, segment := range segments {
		if elf.ProgType(segment.Type) == elf.PT_LOAD && elf.ProgFlag(segment.Flags) == elf.PF_R && segment.Off > 0 &&
			(largest < 0 || segment.Filesz > segments[largest].Filesz) {
			largest = i
		}
	}
	return largest
}

// overwrite puts value, encoded, at the start of out.
func overwrite(out []byte, value any) error {
	_, err := binary.Encode(out, binary.LittleEndian, value)
	return err
}

// hollowOut replaces the content of the picked regular files that match a pattern.
// It is no error if none matches: the patterns concern only the size.
func hollowOut(files []oci.File, t *tree, patterns []string) error {
	for _, pattern := range patterns {
		names, err := t.match(pattern)
		if err != nil {
			return err
		}
		for i, file := range files {
			if file.Mode.Type() != 0 || !slices.Contains(names, file.Path) {
				continue
			}
			err := file.Content.With(func(library *io.SectionReader) error {
				small, err := hollow(library)
				files[i].Content = oci.Content{Inline: small}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", file.Path, err)
			}
		}
	}
	return nil
}
