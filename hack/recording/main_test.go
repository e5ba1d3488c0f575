// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// The committed picture is drawn from the committed transcript.
func TestPictureIsFresh(t *testing.T) {
	text, err := os.ReadFile("../../" + transcriptFile)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../" + pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != picture(string(text)) {
		t.Errorf("%s is not drawn from %s; run: go run ./hack/recording", pictureFile, transcriptFile)
	}
	for _, secret := range []string{"--auth-token"} {
		if i := strings.Index(string(text), secret); i >= 0 && !strings.HasPrefix(string(text)[i:], secret+" [redacted]") {
			t.Errorf("the transcript holds what follows %s", secret)
		}
	}
}

func TestTranscript(t *testing.T) {
	var output strings.Builder
	output.WriteString("==> something\n\n$ other\nnot shown\n")
	for _, command := range shown {
		output.WriteString("\n$ " + command + " x\nNAME   NODE   NOMINATED NODE\na\x1b[32mb     c      <none>\n\n==> the next step\n")
	}
	text, err := transcript(output.String())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "not shown") || strings.Contains(text, "next step") || strings.Contains(text, "\x1b") || strings.Contains(text, "NOMINATED") ||
		strings.Count(text, "$ ") != len(shown) || !strings.Contains(text, "\nab     c\n") {
		t.Errorf("the transcript is\n%s", text)
	}
	if _, err := transcript("$ nothing"); err == nil {
		t.Error("output without the commands is accepted")
	}
}

func TestPicture(t *testing.T) {
	svg := picture("$ cmd " + strings.Repeat("word ", 40) + "\n<out> & liqo-milan\n" + strings.Repeat("é", most+5) + "\n")
	for _, want := range []string{`\</tspan>`, "&lt;out&gt; &amp; ", `<tspan class="v">liqo-milan</tspan>`, "…"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not in\n%s", want, svg)
		}
	}
}
