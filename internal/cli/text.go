// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
)

// maxColumns is the width at which a line is broken.
const maxColumns = 90

// textWriter collects indented lines: keys, values, and nested sections.
type textWriter struct {
	lines []string
	depth int
}

func (w *textWriter) line(format string, args ...any) {
	w.lines = append(w.lines, strings.Repeat("  ", w.depth)+fmt.Sprintf(format, args...))
}

// value writes nothing for an empty value, and breaks a long one at spaces.
func (w *textWriter) value(key, value string) {
	if value == "" {
		return
	}
	text := key + ":"
	for word := range strings.FieldsSeq(value) {
		if len(text)+1+len(word) > maxColumns && text != key+":" {
			w.line("%s", text)
			text = " "
		}
		text += " " + word
	}
	w.line("%s", text)
}

func (w *textWriter) section(title string, inner func()) {
	w.line("%s", title)
	w.depth++
	inner()
	w.depth--
}
