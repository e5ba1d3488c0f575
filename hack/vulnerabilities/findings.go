// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// findings is what govulncheck reports about one program.
type findings struct {
	database string // when the database was changed last
	known    map[string]string
	// linked has the vulnerabilities of which at least one function is linked in, and where. Of a program without symbols it has those of all
	// affected modules.
	linked map[string]vulnerability
}

type vulnerability struct{ module, version, fixed, function string }

// message is one of the JSON objects that govulncheck writes, as far as we need it.
type message struct {
	Config *struct {
		DBLastModified string `json:"db_last_modified"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		Trace        []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Package  string `json:"package"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

// parse reads the output of govulncheck. An output without its first message is an error: nothing was scanned then.
func parse(output []byte) (findings, error) {
	found := findings{known: map[string]string{}, linked: map[string]vulnerability{}}
	scanned := false
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return findings{}, fmt.Errorf("read the output of govulncheck: %w", err)
		}
		switch {
		case m.Config != nil:
			scanned, found.database = true, cmp.Or(m.Config.DBLastModified, "an unknown date")
		case m.OSV != nil:
			found.known[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) > 0 && m.Finding.Trace[0].Function != "":
			// Findings without a function mean that the module or the package is there, but nothing of the vulnerable code.
			at := m.Finding.Trace[0]
			if _, twice := found.linked[m.Finding.OSV]; !twice {
				found.linked[m.Finding.OSV] = vulnerability{at.Module, at.Version, m.Finding.FixedVersion, at.Package + "." + at.Function}
			}
		}
	}
	if !scanned {
		return findings{}, errors.New("govulncheck wrote no result")
	}
	return found, nil
}

type report struct {
	lines    []string
	refused  []string // IDs
	accepted int
}

// judge separates what is accepted from what is not.
func (f findings) judge(accepted map[string]string) report {
	var r report
	for _, id := range slices.Sorted(maps.Keys(f.linked)) {
		v := f.linked[id]
		line := fmt.Sprintf(
			"%s in %s %s (%s), fixed in %s: %s", id, v.module, v.version, v.function, cmp.Or(v.fixed, "no version yet"),
			cmp.Or(f.known[id], "no summary"),
		)
		if reason, ok := accepted[id]; ok {
			r.accepted++
			line += "; accepted: " + reason
		} else {
			r.refused = append(r.refused, id)
		}
		r.lines = append(r.lines, line)
	}
	return r
}

// parseAccepted reads the list of accepted vulnerabilities: an ID and a reason on each line.
func parseAccepted(text string) (map[string]string, error) {
	accepted := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); len(strings.Fields(reason)) < 2 {
			return nil, fmt.Errorf("%s:%d: want the ID of a vulnerability and then a reason of two words at least", acceptedFile, i+1)
		}
		accepted[id] = reason
	}
	return accepted, nil
}
