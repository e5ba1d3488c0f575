// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the licences of modules that may be linked into our programs, as SPDX names them.
// All let us ship under Apache-2.0, given that their texts come along; MPL-2.0 as long as we do not change its files.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense", "Zlib"}

// licence is that of one module.
type licence struct {
	version string
	ids     []string // as SPDX names them, sorted
	text    []byte   // all licence files, one after the other
}

func (l licence) expression() string { return strings.Join(l.ids, " AND ") }

// licences returns those of all modules that liqo and liqoctl of the tree link in, and of Go's standard library, called std.
func licences(ctx context.Context, tree string) (map[string]licence, error) {
	listed, err := output(ctx, tree, "go", "list", "-deps", "-json=Module,Standard", "-tags", "grpcnotrace", "./cmd/liqo", "./cmd/liqoctl")
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, tree, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	found := map[string]licence{}
	if found["std"], err = licenceOf(root, ""); err != nil {
		return nil, fmt.Errorf("licence of Go: %w", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(listed)); ; {
		var linked struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version, Dir string }
			}
		}
		if err := decoder.Decode(&linked); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		module := linked.Module
		if module == nil || module.Main || found[module.Path].text != nil {
			continue
		}
		if found[module.Path], err = licenceOf(module.Dir, module.Version); err != nil {
			return nil, fmt.Errorf("licence of %s %s: %w", module.Path, module.Version, err)
		}
	}
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	// noticeFile matches what the Apache License wants to be passed on with its text.
	noticeFile = regexp.MustCompile(`(?i)^notice(\.(txt|md))?$`)
	// docsFile matches licences of documents, which are not linked in.
	docsFile = regexp.MustCompile(`(?i)\.docs$`)
)

// licenceOf reads the licence files in the folder of a module, and refuses what is not on the list.
func licenceOf(dir, version string) (licence, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return licence{}, err
	}
	found := licence{version: version}
	for _, entry := range entries {
		name := entry.Name()
		notice := noticeFile.MatchString(name)
		if entry.IsDir() || docsFile.MatchString(name) || !notice && !licenceFile.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return licence{}, err
		}
		found.text = append(append(found.text, bytes.TrimSpace(text)...), '\n')
		if notice {
			continue
		}
		ids, err := identify(text)
		if err != nil {
			return licence{}, fmt.Errorf("%s: %w", name, err)
		}
		found.ids = append(found.ids, ids...)
	}
	if len(found.ids) == 0 {
		return licence{}, errors.New("no licence file; a module without licence must not be shipped")
	}
	slices.Sort(found.ids)
	found.ids = slices.Compact(found.ids)
	return found, nil
}

// identify returns the licences of a text, and an error if one is not allowed, or if too much of the text is of no known licence.
func identify(text []byte) ([]string, error) {
	cover := licensecheck.Scan(text)
	var ids []string
	for _, match := range cover.Match {
		if match.IsURL {
			continue
		}
		if !slices.Contains(allowed, match.ID) {
			return nil, fmt.Errorf("%s is not on the list of licences that may be linked in (%s)", match.ID, strings.Join(allowed, ", "))
		}
		ids = append(ids, match.ID)
	}
	// The rest is copyright lines and the advice how to apply a licence.
	if len(ids) == 0 || cover.Percent < 60 {
		return nil, fmt.Errorf("only %.0f %% of the text is of known licences %v; read it and decide", cover.Percent, ids)
	}
	return ids, nil
}

// notices is the file that fulfils the condition of most licences: their text goes with the program.
func notices(known map[string]licence) []byte {
	var text bytes.Buffer
	text.WriteString("Liqo is under the Apache License 2.0. Its programs contain these modules, under their licences.\n")
	for _, module := range slices.Sorted(maps.Keys(known)) {
		l := known[module]
		fmt.Fprintf(&text, "\n%s\n%s\n\n%s", strings.TrimSpace(module+" "+l.version+" ("+l.expression()+")"), strings.Repeat("-", 80), l.text)
	}
	return text.Bytes()
}
