// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/plan"
)

var update = flag.Bool("update", false, "write the plans into testdata")

// TestGolden reads snapshots of clusters (section rome.yaml) and compares the state of each host that has a section: "rome node n1",
// "rome gateway 0".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive := parse(t, file)
			for i, section := range archive.Files {
				if strings.HasSuffix(section.Name, ".yaml") {
					continue
				}
				got := planned(t, archive, section.Name)
				if *update {
					archive.Files[i].Data = []byte(got)
				} else if difference := cmp.Diff(string(section.Data), got); difference != "" {
					t.Errorf("%s (if this is intended: go test ./internal/network/plan -update):\n%s", section.Name, difference)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func parse(t *testing.T, file string) *txtar.Archive {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) == 0 {
		t.Fatalf("%s has no sections", file)
	}
	return archive
}

// planned returns the text of the host that a section is named after.
func planned(t *testing.T, archive *txtar.Archive, name string) string {
	t.Helper()
	words := strings.Fields(name)
	if len(words) != 3 {
		t.Fatalf("section %q: want the name CLUSTER node NAME or CLUSTER gateway LANE", name)
	}
	i := slices.IndexFunc(archive.Files, func(one txtar.File) bool { return one.Name == words[0]+".yaml" })
	if i < 0 {
		t.Fatalf("section %q: there is no section %s.yaml", name, words[0])
	}
	state, err := host(t, readSnapshot(t, archive.Files[i].Data), words[1], words[2])
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

func readSnapshot(t *testing.T, text []byte) (snapshot plan.Snapshot) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, &snapshot); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return snapshot
}

// host plans a node or a gateway. It checks that the plan does not depend on the order of the lists, and that planning does not change the
// snapshot.
func host(t *testing.T, snapshot plan.Snapshot, role, name string) (hoststate.State, error) {
	t.Helper()
	forHost := plan.ForNode
	snapshot.Self.Node = name
	for _, node := range snapshot.Nodes {
		if node.Name == name {
			snapshot.Self.Address = node.Address
		}
	}
	if role == "gateway" {
		forHost = plan.ForGateway
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
	state, err := forHost(snapshot)
	again, _ := forHost(snapshot)
	if !reflect.DeepEqual(state, again) {
		t.Errorf("planning %s %s twice gives two results", role, name)
	}
	if after := fmt.Sprintf("%+v", snapshot); before != after {
		t.Errorf("planning %s %s changed the snapshot from\n%s\nto\n%s", role, name, before, after)
	}
	if err == nil {
		reversed, err := forHost(reverse(snapshot))
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
