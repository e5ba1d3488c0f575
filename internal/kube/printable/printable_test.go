// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestWriter: letters that are written in parts stay whole, in whatever parts.
func TestWriter(t *testing.T) {
	const text = "✓ née\t─┐\n\x1b[31m日本 done\n"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := NewWriter(&out)
		for at := 0; at < len(text); at += size {
			if n, err := w.Write([]byte(text[at:min(at+size, len(text))])); err != nil || n != min(size, len(text)-at) {
				t.Fatal(n, err)
			}
		}
		if want := strings.ReplaceAll(text, "\x1b", "\ufffd"); out.String() != want {
			t.Errorf("in parts of %d bytes: %q, want %q", size, out.String(), want)
		}
	}
}

// FuzzLine: whatever the text, the line is short, valid and printable, and a line stays what it is.
func FuzzLine(f *testing.F) {
	f.Add("two\nlines\tand \x1b[31m colour \u202e\xff", 40)
	f.Add(strings.Repeat("ä", 1000), 7)
	f.Add("", 5)
	f.Add("ɴ0000", 5)         // nothing is left before the dots
	f.Add("abcd efghijkl", 9) // what is cut begins after a space
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 5 || most > 1<<20 {
			return
		}
		line := Line(text, most)
		if len(line) > most || !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q becomes %q", text, line)
		}
		if again := Line(line, most); again != line {
			t.Errorf("%q becomes %q, and that %q", text, line, again)
		}
	})
}
