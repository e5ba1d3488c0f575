// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/playground/internal/cluster"
	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/scenario"
)

const source = "../.." // the playground's directory, seen from this package

// The versions that programs and images report are written here, the actual ones are pinned in
// go.mod files; the two must be equal.
func TestVersionsMatchTheModules(t *testing.T) {
	for _, c := range []struct{ module, require, version string }{
		{"kube", "k8s.io/kubernetes", cluster.Version},
		{"coredns", "github.com/coredns/coredns", "v" + tag(image.CoreDNSName)},
		{"metrics-server", "sigs.k8s.io/metrics-server", "v" + tag(image.MetricsServerName)},
		{"metrics-server", "sigs.k8s.io/metrics-server", metricsServerVersion[strings.LastIndex(metricsServerVersion, "=")+1:]},
	} {
		mod, err := os.ReadFile(filepath.Join(source, "components", c.module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(c.require) + ` (\S+)`).FindSubmatch(mod)
		if m == nil || string(m[1]) != c.version {
			t.Errorf("component %s is built from %s %s but reports %s", c.module, c.require, m, c.version)
		}
	}
}

func tag(name string) string { return name[strings.LastIndexByte(name, ':')+1:] }

func TestComponentsExistAndDiffer(t *testing.T) {
	keys := map[string]string{}
	for _, c := range Components {
		if _, err := os.Stat(filepath.Join(source, c.Dir, "go.mod")); err != nil {
			t.Errorf("component %s: %v", c.Name, err)
		}
		key, err := Key(source, c)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := keys[key]; taken {
			t.Errorf("components %s and %s have the same key", c.Name, other)
		}
		keys[key] = c.Name
	}
}

// The key must change with everything that can change the program, and with nothing else.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("x/go.mod", "module x")
	put("x/go.sum", "")
	put("x/main.go", "package main")
	base := Component{Name: "x", Dir: "x", Packages: []string{"."}}
	key := func(c Component) string {
		t.Helper()
		k, err := Key(dir, c)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := key(base)
	if key(base) != first {
		t.Error("the key of the same source differs")
	}
	put("x/main_test.go", "package main")
	put("y/other.go", "package other")
	if key(base) != first {
		t.Error("a test, or a file elsewhere, changes the key")
	}
	for name, c := range map[string]Component{
		"tags":     {Name: "x", Dir: "x", Packages: []string{"."}, Tags: "seccomp"},
		"cgo":      {Name: "x", Dir: "x", Packages: []string{"."}, CGO: true},
		"ldflags":  {Name: "x", Dir: "x", Packages: []string{"."}, LDFlags: "-X a=b"},
		"packages": {Name: "x", Dir: "x", Packages: []string{"./cmd"}},
	} {
		if key(c) == first {
			t.Errorf("other %s, same key", name)
		}
	}
	for _, file := range []string{"x/go.sum", "x/go.mod", "x/main.go", "x/manifests/new.yaml"} {
		before := key(base)
		put(file, "changed")
		if key(base) == before {
			t.Errorf("%s changed, the key did not", file)
		}
	}
	if _, err := Key(dir, Component{Name: "z", Dir: "missing"}); err == nil {
		t.Error("a missing source has a key")
	}
}

// A directory of the cache is complete if it exists, whatever went wrong on the way.
func TestAtomically(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "result")
	broken := func(tmp string) error {
		_ = os.WriteFile(filepath.Join(tmp, "half"), nil, 0o644)
		return os.ErrInvalid
	}
	if err := atomically(dir, broken); err == nil {
		t.Fatal("the error is lost")
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 0 {
		t.Errorf("a failed step leaves %v", left)
	}
	if err := atomically(dir, func(tmp string) error { return os.WriteFile(filepath.Join(tmp, "whole"), nil, 0o644) }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "whole")); err != nil {
		t.Error(err)
	}
}

// Only what a scenario needs is built: kwok belongs to those with kwok nodes.
func TestExtras(t *testing.T) {
	hollow := func(kind scenario.HollowKind) scenario.Cluster {
		return scenario.Cluster{Hollow: []scenario.Hollow{{Kind: kind, Count: 1}}}
	}
	if got := Extras(scenario.Cluster{}, hollow(scenario.HollowKubemark)); len(got) != 0 {
		t.Errorf("clusters without kwok nodes need %v", got)
	}
	if got := Extras(hollow(scenario.HollowKwok), hollow(scenario.HollowKwok)); !slices.Equal(got, AllExtras()) {
		t.Errorf("clusters with kwok nodes need %v, want %v", got, AllExtras())
	}
}

// A set counts as built with an extra component only if that is there.
func TestFindExtras(t *testing.T) {
	b := Builder{Source: source, Cache: t.TempDir()}
	set, built, err := b.Find()
	if err != nil || built {
		t.Fatalf("in an empty cache: built %v, %v", built, err)
	}
	for _, step := range []struct {
		make         string
		basic, extra bool
	}{{set.path(), true, false}, {set.path(kwok), true, true}} {
		if err := os.MkdirAll(step.make, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, built, err := b.Find(); err != nil || built != step.basic {
			t.Errorf("with %s the set is built: %v, %v", step.make, built, err)
		}
		if _, built, err := b.Find(AllExtras()...); err != nil || built != step.extra {
			t.Errorf("with %s the set with extras is built: %v, %v", step.make, built, err)
		}
	}
}

func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	p := newPace([]Component{{Name: "a", Seconds: 300}, {Name: "b", Seconds: 60}, {Name: "c", Seconds: 240}}, func() time.Time { return now })
	for _, step := range []struct {
		part  string
		after time.Duration
		want  string
	}{
		{"a", 0, "1 of 3: about 10 minutes left"},
		{"", 2 * time.Minute, "about 8 minutes left"},
		{"", 8 * time.Minute, "about 10 minutes left"}, // twice as slow as expected, at the least
		{"b", 0, "2 of 3: about 10 minutes left"},
		{"c", 2 * time.Minute, "3 of 3: about 8 minutes left"},
		{"", 8 * time.Minute, "about a minute left"},
	} {
		now = now.Add(step.after)
		got := ""
		if step.part != "" {
			number, of := p.start(step.part)
			got = fmt.Sprintf("%d of %d: ", number, of)
		}
		if got += p.left(); got != step.want {
			t.Errorf("%s after %s more: %q, want %q", step.part, step.after, got, step.want)
		}
	}
}
