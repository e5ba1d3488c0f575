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
	write("a\n" + tableBegins + "\nold\n" + tableEnds + "\nb\n")
	for range 2 { // twice is as once
		if err := fill(document, "\n| new |\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if want := "a\n" + tableBegins + "\n\n| new |\n\n" + tableEnds + "\nb\n"; err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	write("no marks")
	if fill(document, "x") == nil || fill(filepath.Join(t.TempDir(), "none"), "x") == nil {
		t.Error("a document without a place for the table is taken")
	}
	if text, err := os.ReadFile("../../../docs/benchmarks.md"); err != nil {
		t.Error(err)
	} else if write(string(text)); fill(document, "x") != nil {
		t.Error("docs/benchmarks.md has no place for the table")
	}
}
