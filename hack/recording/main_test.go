// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"liqo.io/liqo/test/guide"
)

// The committed pictures are drawn from the committed transcripts.
func TestPictureIsFresh(t *testing.T) {
	for _, s := range subjects() {
		text, err := os.ReadFile("../../" + s.file + ".txt")
		if errors.Is(err, fs.ErrNotExist) && s.file != quickStart.file {
			continue // not recorded yet
		}
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile("../../" + s.file + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != s.picture(string(text)) {
			t.Errorf("%s.svg is not drawn from its transcript; run: go run ./hack/recording", s.file)
		}
		for _, secret := range []string{"--auth-token", "token="} {
			if i := strings.Index(string(text), secret); i >= 0 && !strings.HasPrefix(string(text)[i:], secret+" [redacted]") {
				t.Errorf("the transcript %s.txt holds what follows %s", s.file, secret)
			}
		}
	}
}

func TestTranscript(t *testing.T) {
	for _, s := range subjects() {
		var output strings.Builder
		output.WriteString("==> something\n\n$ other\nnot shown\n")
		for _, command := range s.shown {
			typed, all := strings.CutSuffix(command.start, "\n")
			if !all {
				typed += " x"
			}
			output.WriteString("\n$ " + typed + "\nNAME   NODE   NOMINATED NODE\na\x1b[32mb     c      <none>\n\n==> the next step\n")
		}
		text, err := s.transcript(output.String())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "not shown") || strings.Contains(text, "next step") || strings.Contains(text, "\x1b") || strings.Contains(text, "NOMINATED") ||
			strings.Count(text, "$ ") != len(s.shown) || !strings.Contains(text, "\nab     c\n") {
			t.Errorf("the transcript of %s is\n%s", s.file, text)
		}
		if _, err := s.transcript("$ nothing"); err == nil {
			t.Errorf("%s: output without the commands is accepted", s.file)
		}
	}
}

// What is shown of an example are commands of its guide, in their order, as the suite of the examples prints them.
func TestShownIsInGuide(t *testing.T) {
	for name := range examples {
		text, err := guide.Read("../..", name)
		if err != nil {
			t.Fatal(err)
		}
		var outputs []guide.Output
		for _, command := range guide.Commands(text) {
			outputs = append(outputs, guide.Output{Command: command, Text: "its output\n"})
		}
		if _, err := example(name).transcript(guide.Transcript(outputs)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A command that is shown twice is taken at both places; of one with a pattern, only these lines are shown.
func TestTranscriptOrder(t *testing.T) {
	s := subject{shown: []shown{{start: "get"}, {start: "change"}, {"get", "^two"}}}
	text, err := s.transcript("$ get\none\n\n$ change\n\n$ get\ntwo\nthree\n")
	if want := "$ get\none\n\n$ change\n\n$ get\ntwo\n"; text != want || err != nil {
		t.Errorf("%q (%v), want %q", text, err, want)
	}
}

func TestPicture(t *testing.T) {
	svg := quickStart.picture("$ cmd " + strings.Repeat("word ", 40) + "\n<out> & liqo-milan\n" + strings.Repeat("é", most+5) + "\n")
	for _, want := range []string{`\</tspan>`, "&lt;out&gt; &amp; ", `<tspan class="v">liqo-milan</tspan>`, "…"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not in\n%s", want, svg)
		}
	}
}

func TestPortOf(t *testing.T) {
	if port, err := portOf(strings.NewReader("Forwarding from 127.0.0.1:40123 -> 8080\nForwarding from [::1]:40123 -> 8080\n")); port != "40123" || err != nil {
		t.Errorf("port %q, error %v", port, err)
	}
	if port, err := portOf(strings.NewReader("error: no such Service\n")); err == nil {
		t.Errorf("port %q without a forward", port)
	}
}
