// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/network/plan"
)

var update = flag.Bool("update", false, "write what is planned into testdata")

// TestGolden reads snapshots of clusters (section rome.yaml) and compares the state of each host that has a section: "rome node n1",
// "rome gateway 0".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			comment, sections := readSections(t, file)
			for i, section := range sections {
				if strings.HasSuffix(section.name, ".yaml") {
					continue
				}
				got := section.plan(t, sections)
				if *update {
					sections[i].text = got
				} else if difference := cmp.Diff(section.text, got); difference != "" {
					t.Errorf("%s (if this is what was meant: go test ./internal/network/plan -update):\n%s", section.name, difference)
				}
			}
			if *update {
				text := comment
				for _, section := range sections {
					text += "-- " + section.name + " --\n" + section.text
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type section struct{ name, text string }

var heading = regexp.MustCompile(`(?m)^-- (.+) --\n`)

func readSections(t *testing.T, file string) (comment string, sections []section) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	found := heading.FindAllStringSubmatchIndex(text, -1)
	if len(found) == 0 {
		t.Fatalf("%s has no sections", file)
	}
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		sections = append(sections, section{name: text[at[2]:at[3]], text: text[at[1]:end]})
	}
	return text[:found[0][0]], sections
}

// plan is the text of the host that the section is named after.
func (s section) plan(t *testing.T, sections []section) string {
	t.Helper()
	words := strings.Fields(s.name)
	if len(words) != 3 {
		t.Fatalf("section %q is not called: CLUSTER node NAME, or CLUSTER gateway LANE", s.name)
	}
	i := slices.IndexFunc(sections, func(other section) bool { return other.name == words[0]+".yaml" })
	if i < 0 {
		t.Fatalf("section %q: there is no section %s.yaml", s.name, words[0])
	}
	state, err := host(t, readSnapshot(t, sections[i].text), words[1], words[2])
	text := ""
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			text += "error: " + strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	if reflect.ValueOf(state).IsZero() {
		if errors.Is(err, plan.ErrNoPlan) {
			return text
		}
		return text + "nothing\n"
	}
	return text + state.String()
}

func readSnapshot(t *testing.T, text string) (snapshot plan.Snapshot) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &snapshot); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return snapshot
}

// host plans a node or a gateway. What it should be is equal each time, whatever the order of what is known, and the snapshot is left alone.
func host(t *testing.T, snapshot plan.Snapshot, role, name string) (plan.HostState, error) {
	t.Helper()
	planned := plan.ForNode
	snapshot.Self.Node = name
	for _, node := range snapshot.Nodes {
		if node.Name == name {
			snapshot.Self.Address = node.Address
		}
	}
	if role == "gateway" {
		planned = plan.ForGateway
		lane, err := strconv.Atoi(name)
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Self.Lane = lane
		for _, gateway := range snapshot.Gateways {
			if gateway.Lane == lane {
				snapshot.Self.Node, snapshot.Self.Address = gateway.Node, gateway.Address
			}
		}
	}
	before := fmt.Sprintf("%+v", snapshot)
	state, err := planned(snapshot)
	again, _ := planned(snapshot)
	if !reflect.DeepEqual(state, again) {
		t.Errorf("%s %s is planned differently the second time", role, name)
	}
	if after := fmt.Sprintf("%+v", snapshot); before != after {
		t.Errorf("planning %s %s changed the snapshot from\n%s\nto\n%s", role, name, before, after)
	}
	if err == nil {
		reversed, err := planned(reverse(snapshot))
		if difference := cmp.Diff(state.String(), reversed.String()); err != nil || difference != "" {
			t.Errorf("%s %s depends on the order of the lists: %v\n%s", role, name, err, difference)
		}
	}
	return state, err
}

func reverse(s plan.Snapshot) plan.Snapshot {
	s.Nodes, s.Gateways, s.Peers, s.Mappings = slices.Clone(s.Nodes), slices.Clone(s.Gateways), slices.Clone(s.Peers), slices.Clone(s.Mappings)
	slices.Reverse(s.Nodes)
	slices.Reverse(s.Gateways)
	slices.Reverse(s.Peers)
	slices.Reverse(s.Mappings)
	return s
}
