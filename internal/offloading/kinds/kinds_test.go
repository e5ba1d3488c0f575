// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestRows: each row has the names that API servers use, and types in the scheme.
func TestRows(t *testing.T) {
	keeps := map[string]bool{"NetworkPolicy": true, "ResourceQuota": true, "LimitRange": true, "RoleBinding": true}
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	orders := map[int]string{}
	for _, kind := range All() {
		t.Run(kind.Local.Kind, func(t *testing.T) {
			for _, resource := range []Resource{kind.Local, kind.Remote} {
				if plural, _ := meta.UnsafeGuessKindToResource(resource.GroupVersionKind); plural != resource.GroupVersionResource() {
					t.Errorf("resource %v of %v, want %v", resource.GroupVersionResource(), resource.GroupVersionKind, plural)
				}
				for _, name := range []string{resource.Kind, resource.Kind + "List"} {
					if !scheme.Recognizes(resource.GroupVersion().WithKind(name)) {
						t.Errorf("Register adds no %s", name)
					}
				}
			}
			if (kind.Flag == "") != (kind.Workers == 0) {
				t.Errorf("flag %q for %d workers", kind.Flag, kind.Workers)
			}
			if other := orders[kind.Order]; other != "" {
				t.Errorf("has the order of %s", other)
			}
			orders[kind.Order] = kind.Local.Kind
			if kind.Foreign() && (kind.Metadata == nil) == (kind.Guard == nil) {
				t.Error("a peer writes labels and annotations, of which components take orders: Metadata, or a Guard, has to state which it may")
			}
			if kind.Foreign() && kind.Counted && (kind.Total == "" || kind.Most == "" || kind.Remote.Version != "v1") {
				t.Errorf("%q and %q bound the number of objects, and webhooks see version v1, of %s", kind.Total, kind.Most, kind.Remote.GroupVersionKind)
			}
			if keeps[kind.Remote.Kind] {
				t.Error("Liqo keeps objects of this kind in remote namespaces, and a peer's rights are for all of a kind: it could take away what bounds it")
			}
			if rights := kind.Rights; !rights.Bounded && rights.Elsewhere != nil || rights.Value == "" && rights.Without != nil {
				t.Errorf("the rights %+v name verbs that are never granted", rights)
			}
		})
	}
}

// TestFiles: each row has a file of its name, and each file a row.
func TestFiles(t *testing.T) {
	var want []string
	for _, kind := range All() {
		want = append(want, strings.ToLower(kind.Local.Kind)+".go")
	}
	var got []string
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), " = row(Kind{") {
			got = append(got, file)
		}
	}
	slices.Sort(want)
	if got = slices.DeleteFunc(got, func(file string) bool { return strings.HasSuffix(file, "_test.go") }); !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
}
