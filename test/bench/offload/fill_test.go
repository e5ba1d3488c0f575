// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFill(t *testing.T) {
	document := filepath.Join(t.TempDir(), "d.md")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a\n" + tableStart + "\nold\n" + tableEnd + "\nb\n")
	for range 2 { // the second call changes nothing
		if err := fill(document, "\n| new |\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if want := "a\n" + tableStart + "\n\n| new |\n\n" + tableEnd + "\nb\n"; err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	write("no table")
	if fill(document, "x") == nil || fill(filepath.Join(t.TempDir(), "none"), "x") == nil {
		t.Error("a document without the lines around a table is accepted")
	}
	if text, err := os.ReadFile("../../../docs/benchmarks.md"); err != nil {
		t.Error(err)
	} else if write(string(text)); fill(document, "x") != nil {
		t.Error("docs/benchmarks.md lacks the lines around the table")
	}
}
