// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

const page = 0x1000

// dataLibrary has tables in page 0, bulk bytes of data from page 1, and after them one
// writable segment at the place a linker would choose.
func dataLibrary(bulk uint64, extra ...elf.Prog64) []byte {
	tail := (page + bulk + page - 1) / page * page
	segments := append([]elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: 0x200, Memsz: 0x200, Align: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: page, Vaddr: page, Filesz: bulk, Memsz: bulk, Align: page},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_W), Off: tail, Vaddr: tail + page, Filesz: 4, Memsz: 64, Align: page},
	}, extra...)
	header := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(x86), Version: 1,
		Ehsize: 64, Phentsize: 56, Phoff: 64, Phnum: uint16(len(segments)), Shoff: tail + 4, Shnum: 1, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	out := bytes.Repeat([]byte("d"), int(tail)+4)
	for at, value := range map[int]any{0: header, 64: segments, int(tail): []byte("tail")} {
		if _, err := binary.Encode(out[at:], binary.LittleEndian, value); err != nil {
			panic(err) // a bug of this function
		}
	}
	return out
}

func TestHollowKeepsAddressesAndDropsData(t *testing.T) {
	for _, bulk := range []uint64{2 * page, 100*page + 17} {
		whole := dataLibrary(bulk)
		small, err := hollow(sectionOf(whole))
		if err != nil {
			t.Fatal(err)
		}
		if len(small) > 4*page {
			t.Errorf("bulk %d: %d bytes left of %d", bulk, len(small), len(whole))
		}
		after, err := elf.NewFile(bytes.NewReader(small))
		if err != nil {
			t.Fatalf("bulk %d: result is no ELF file: %v", bulk, err)
		}
		_, segments, err := readSegments(sectionOf(whole))
		if err != nil {
			t.Fatal(err)
		}
		for i, old := range segments {
			got := after.Progs[i]
			if got.Vaddr != old.Vaddr || got.Memsz != old.Memsz || got.Off%page != got.Vaddr%page {
				t.Errorf("bulk %d: segment %d moved in memory: %+v was %+v", bulk, i, got.ProgHeader, old)
			}
		}
		if tail, err := io.ReadAll(after.Progs[2].Open()); err != nil || string(tail) != "tail" {
			t.Errorf("bulk %d: last segment holds %q, %v", bulk, tail, err)
		}
		if data, err := io.ReadAll(after.Progs[1].Open()); err != nil || string(data) != strings.Repeat("d", page) {
			t.Errorf("bulk %d: first page of the data is not kept: %v", bulk, err)
		}
	}
}

func TestHollowRefuses(t *testing.T) {
	for name, library := range map[string][]byte{
		"not ELF":       []byte(strings.Repeat("text", 100)),
		"cut short":     dataLibrary(4 * page)[:100],
		"small":         dataLibrary(page),
		"segment in it": dataLibrary(4*page, elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 2*page + 8, Filesz: 16}),
	} {
		if _, err := hollow(sectionOf(library)); !errors.Is(err, errHollow) {
			t.Errorf("%s: error %v, want %v", name, err, errHollow)
		}
	}
}

func sectionOf(data []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(data), 0, int64(len(data)))
}
