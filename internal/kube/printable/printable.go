// SPDX-License-Identifier: Apache-2.0

// Package printable makes text of other clusters safe to store and to show: conditions, names and warnings may come from a peer, whose control
// sequences could rewrite what a terminal shows of us, and whose text may have any length.
//
// It must not know where the text is from, nor where it goes.
package printable

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLine is the usual bound of text from another cluster, in bytes.
const MaxLine = 1500

// Line makes one printable line, with at most so many bytes. What is cut ends with three dots.
func Line(text string, most int) string {
	const cut = " ..."
	if len(text) > 4*most { // so that a megabyte costs no more than a line
		text = text[:4*most]
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) > most {
		text = strings.TrimSpace(strings.TrimSpace(strings.ToValidUTF8(text[:most-len(cut)], "")) + cut)
	}
	return text
}

// Text replaces what moves the cursor, changes colours or reverses letters. Lines and tabs stay.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

type Writer struct {
	to io.Writer
	// begun are the first bytes of a letter whose others follow with the next write.
	begun []byte
}

func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

func (w *Writer) Write(text []byte) (int, error) {
	all := append(w.begun, text...)
	end := len(all)
	for last := end - 1; last >= max(0, end-utf8.UTFMax); last-- {
		if utf8.RuneStart(all[last]) {
			if !utf8.FullRune(all[last:]) {
				end = last
			}
			break
		}
	}
	w.begun = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(w.to, Text(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(text), nil
}
