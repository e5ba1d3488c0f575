// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"strings"
)

// maxColumns is the width at which a line is broken.
const maxColumns = 90

// Text collects indented lines: keys, values, and nested sections.
type Text struct {
	Lines []string
	Depth int
}

func (w *Text) Line(format string, args ...any) {
	w.Lines = append(w.Lines, strings.Repeat("  ", w.Depth)+fmt.Sprintf(format, args...))
}

// Value writes nothing for an empty value, and breaks a long one at spaces.
func (w *Text) Value(key, value string) {
	if value == "" {
		return
	}
	text := key + ":"
	for word := range strings.FieldsSeq(value) {
		if len(text)+1+len(word) > maxColumns && text != key+":" {
			w.Line("%s", text)
			text = " "
		}
		text += " " + word
	}
	w.Line("%s", text)
}

func (w *Text) Section(title string, inner func()) {
	w.Line("%s", title)
	w.Depth++
	inner()
	w.Depth--
}
