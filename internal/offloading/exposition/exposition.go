// SPDX-License-Identifier: Apache-2.0

// Package exposition filters the text in which kubelets report their metrics: it reads samples, keeps some of them, changes their labels, and
// writes them grouped by family. Other clusters send its input: the length of lines and the total are bounded, and a line that is no sample is
// an error.
//
// It must not know what metrics mean, nor where they come from. Its proof is exposition_test.go, and the fuzz test there.
//
// The parser of github.com/prometheus/common/expfmt builds all of a page in memory before anything can be dropped: 14.5 MB for a node's page of
// 4 MB, of which a peer gets a tenth (0.4 MB here), and 46 MB for one hostile megabyte. That is why this package has its own.
package exposition

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// longestLine exceeds every line of a kubelet.
	longestLine = 256 << 10
	maxLabels   = 64
)

// ContentType is the content type of the text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// ErrTooMuch is returned when a page or its source is larger than the page allows.
var ErrTooMuch = errors.New("too many metrics")

// Label is a name and its value.
type Label struct{ Name, Value string }

// Sample is one line of the text.
type Sample struct {
	Name   string
	Labels []Label
	// Value and Timestamp are text, unchanged from the source. Timestamp may be empty.
	Value, Timestamp string
}

// Label returns the value of a label, empty if the sample does not have it.
func (s *Sample) Label(name string) string {
	for i := range s.Labels {
		if s.Labels[i].Name == name {
			return s.Labels[i].Value
		}
	}
	return ""
}

// SetLabel changes a label, if the sample has it.
func (s *Sample) SetLabel(name, value string) {
	for i := range s.Labels {
		if s.Labels[i].Name == name {
			s.Labels[i].Value = value
		}
	}
}

var errSyntax = errors.New("not a sample")

// Parse returns the sample of a line.
func Parse(line string) (Sample, error) {
	var s Sample
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 || !isName(line[:end]) {
		return s, errSyntax
	}
	s.Name, line = line[:end], line[end:]
	if line[0] == '{' {
		var err error
		if s.Labels, line, err = parseLabels(line[1:]); err != nil {
			return s, err
		}
	}
	switch fields := strings.Fields(line); len(fields) {
	case 2:
		s.Timestamp = fields[1]
		fallthrough
	case 1:
		s.Value = fields[0]
	default:
		return s, errSyntax
	}
	return s, nil
}

// parseLabels reads the text after the opening brace, and returns the labels and the text after the closing one.
func parseLabels(line string) ([]Label, string, error) {
	var all []Label
	for {
		line = strings.TrimLeft(line, " \t")
		if rest, ok := strings.CutPrefix(line, "}"); ok {
			return all, rest, nil
		}
		name, rest, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || !isName(name) || len(all) == maxLabels {
			return nil, "", errSyntax
		}
		value, rest, err := parseValue(strings.TrimLeft(rest, " \t"))
		if err != nil {
			return nil, "", err
		}
		all = append(all, Label{name, value})
		rest = strings.TrimLeft(rest, " \t")
		if !strings.HasPrefix(rest, "}") && !strings.HasPrefix(rest, ",") {
			return nil, "", errSyntax
		}
		line = strings.TrimPrefix(rest, ",")
	}
}

func parseValue(line string) (value, rest string, err error) {
	if !strings.HasPrefix(line, `"`) {
		return "", "", errSyntax
	}
	line = line[1:]
	if end := strings.IndexAny(line, `"\`); end >= 0 && line[end] == '"' { // nothing is escaped: the common case
		return line[:end], line[end+1:], nil
	}
	var text strings.Builder
	for i := 0; i < len(line); i++ {
		switch char := line[i]; char {
		case '"':
			return text.String(), line[i+1:], nil
		case '\\':
			if i++; i == len(line) {
				return "", "", errSyntax
			}
			if line[i] == 'n' {
				text.WriteByte('\n')
			} else {
				text.WriteByte(line[i])
			}
		default:
			text.WriteByte(char)
		}
	}
	return "", "", errSyntax
}

func isName(text string) bool {
	for i := range len(text) {
		char := text[i]
		if char != '_' && char != ':' && (char < 'a' || char > 'z') && (char < 'A' || char > 'Z') && (i == 0 || char < '0' || char > '9') {
			return false
		}
	}
	return text != ""
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (s *Sample) appendTo(to []byte) []byte {
	to = append(to, s.Name...)
	for i, label := range s.Labels {
		if i == 0 {
			to = append(to, '{')
		} else {
			to = append(to, ',')
		}
		to = append(append(append(append(to, label.Name...), `="`...), escape.Replace(label.Value)...), '"')
	}
	if len(s.Labels) > 0 {
		to = append(to, '}')
	}
	to = append(append(to, ' '), s.Value...)
	if s.Timestamp != "" {
		to = append(append(to, ' '), s.Timestamp...)
	}
	return append(to, '\n')
}

// Page holds samples of many sources, by family.
type Page struct {
	limit    int
	size     int
	families map[string]*family
}

type family struct {
	help, kind string
	samples    []byte
}

// NewPage returns a page that holds at most limit bytes, and reads at most twice as many from each source.
func NewPage(limit int) *Page { return &Page{limit: limit, families: map[string]*family{}} }

// Read adds those samples of a source for which keep returns true. keep may change the sample.
func (p *Page) Read(from io.Reader, keep func(*Sample) bool) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 16<<10), longestLine)
	var current, help, kind string
	for left := 2 * p.limit; lines.Scan(); {
		if left -= len(lines.Bytes()) + 1; left < 0 {
			return ErrTooMuch
		}
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			words := strings.SplitN(string(line), " ", 4)
			if len(words) == 4 && (words[1] == "HELP" || words[1] == "TYPE") && isName(words[2]) {
				if words[2] != current {
					current, help, kind = words[2], "", ""
				}
				if words[1] == "HELP" {
					help = words[3]
				} else {
					kind = words[3]
				}
			}
			continue
		}
		sample, err := Parse(string(line))
		if err != nil {
			if broken := lines.Err(); broken != nil { // the line is only as much as arrived of it
				return broken
			}
			return fmt.Errorf("line %.80q: %w", line, err)
		}
		if !keep(&sample) {
			continue
		}
		if memberOf(sample.Name, current) {
			err = p.add(current, help, kind, &sample)
		} else {
			err = p.add(sample.Name, "", "", &sample)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// memberOf returns whether samples of that name belong to the family.
func memberOf(name, family string) bool {
	rest, ok := strings.CutPrefix(name, family)
	return ok && family != "" && slices.Contains([]string{"", "_bucket", "_sum", "_count", "_total", "_created"}, rest)
}

// Add adds one sample, whose family has the same name.
func (p *Page) Add(help, kind string, s Sample) error { return p.add(s.Name, help, kind, &s) }

func (p *Page) add(name, help, kind string, s *Sample) error {
	f := p.families[name]
	if f == nil {
		f = &family{help: help, kind: kind}
		p.families[name] = f
		p.size += len(name)*2 + len(help) + len(kind) + 32
	}
	before := len(f.samples)
	f.samples = s.appendTo(f.samples)
	if p.size += len(f.samples) - before; p.size > p.limit {
		return ErrTooMuch
	}
	return nil
}

// Join adds all samples of another page.
func (p *Page) Join(other *Page) error {
	for name, from := range other.families {
		f := p.families[name]
		if f == nil {
			f = &family{help: from.help, kind: from.kind}
			p.families[name] = f
			p.size += len(name)*2 + len(f.help) + len(f.kind) + 32
		}
		f.samples = append(f.samples, from.samples...)
		if p.size += len(from.samples); p.size > p.limit {
			return ErrTooMuch
		}
	}
	return nil
}

// WriteTo writes the page as text, families in the order of their names.
func (p *Page) WriteTo(to io.Writer) (int64, error) {
	var total int64
	names := make([]string, 0, len(p.families))
	for name := range p.families {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f := p.families[name]
		var head string
		if f.help != "" {
			head += "# HELP " + name + " " + f.help + "\n"
		}
		if f.kind != "" {
			head += "# TYPE " + name + " " + f.kind + "\n"
		}
		for _, part := range [][]byte{[]byte(head), f.samples} {
			n, err := to.Write(part)
			if total += int64(n); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}
