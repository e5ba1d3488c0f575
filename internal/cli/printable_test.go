// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"liqo.io/liqo/internal/cli/access"
	"liqo.io/liqo/internal/cli/output"
	"liqo.io/liqo/internal/kube/printable"
)

// hostile clears the screen, goes up a line, rings and reverses the letters that follow.
const hostile = "\x1b[2J\u009b1A\a\r\u202eReady\xff"

// TestAttackM7Terminal: no control sequence of a peer reaches the terminal, whichever way its text takes through liqoctl.
func TestAttackM7Terminal(t *testing.T) {
	for name, show := range map[string]func(p *output.Printer, f *access.Factory){
		"line":    func(p *output.Printer, _ *access.Factory) { p.Info("waits: " + hostile) },
		"done":    func(p *output.Printer, _ *access.Factory) { p.Done("waits: " + hostile) },
		"error":   func(p *output.Printer, _ *access.Factory) { p.Fail(errors.New(hostile)) },
		"warning": func(p *output.Printer, _ *access.Factory) { p.HandleWarningHeader(299, "", hostile) },
		"status": func(_ *output.Printer, f *access.Factory) {
			output.Draw(f.Streams.Out, []output.Box{{Title: "Peer", Lines: []string{hostile}}})
		},
	} {
		var out, errs bytes.Buffer
		_, f := newRoot(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}, "liqoctl")
		show(f.Printer, f)
		text := out.String() + errs.String()
		if !strings.Contains(text, "Ready") {
			t.Errorf("%s: the text is missing: %q", name, text)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestSpinnerIsPrintable: the step that a spinner names is printable, the sequences of the spinner itself stay.
func TestSpinnerIsPrintable(t *testing.T) {
	var errs bytes.Buffer
	p := output.New(genericiooptions.IOStreams{Out: &bytes.Buffer{}, ErrOut: &errs})
	p.Terminal = true
	p.Start("waits: " + hostile)
	p.Stop()
	if text := errs.String(); strings.Contains(text, "\x1b[2J") || !strings.Contains(text, "\x1b[K") {
		t.Errorf("%q", text)
	}
}

// TestPrintableOutput: what liqoctl writes for other programs passes unchanged.
func TestPrintableOutput(t *testing.T) {
	for _, shell := range shells {
		root := NewRoot(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}}, "liqoctl")
		var script bytes.Buffer
		if err := shell.write(root, &script); err != nil {
			t.Fatal(err)
		}
		if text := script.String(); printable.Text(text) != text {
			t.Errorf("the script for %s has control characters", shell.name)
		}
	}
}
