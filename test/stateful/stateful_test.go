// SPDX-License-Identifier: Apache-2.0

// Package stateful runs the commands of the guide in examples/stateful-applications line by line: a database with a replica in each of two
// clusters loses a pod and a cluster, and no row. After the guide's commands it loses the cluster with the majority as well.
// Then a replica and its volume move to a third cluster. Its short form, in the gate, ends before a cluster is lost.
//
// It knows what a reader knows: the guide, the output, kubectl. It brings the playground's scenario stateful up and takes it down, unless clusters are given.
// Run all of it with: make test-long SUITE=stateful, its short form with: go test ./test/stateful -v
package stateful

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/guide"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "the whole guide, and the loss of turin; without it, the guide until a cluster is lost, then its end")

	clusters    *env.Env
	turin, lyon *env.Cluster
)

const (
	example   = "stateful-applications"
	namespace = "liqo-demo"
	selectAll = `MYSQL_PWD=$PASSWORD mariadb --no-defaults --host=$POD_IP --user=user --table my_database --execute='SELECT * FROM People'`
)

// own are the commands of the guide that make and remove clusters and images, and choose what env has chosen.
var own = regexp.MustCompile(`^(make |bin/playground |for image |export |cd )`)

func TestMain(m *testing.M) {
	env.Main(m, env.Stateful, keep, func(e *env.Env) error {
		clusters, turin, lyon = e, e.Clusters[0], e.Clusters[1]
		return e.LoadNeeded("liqo-image.tar", "galera-image.tar", "mover-image.tar")
	})
}

// TestStateful goes through the guide.
func TestStateful(t *testing.T) {
	if !*long {
		t.Skip("SKIPPED: TestStatefulShort is the short form: -long")
	}
	use, end := parts(t)
	outputs := follow(t, use, nil)
	judge(t, outputs, use, rows)
	check(t, outputs, append(placed, moved))
	turinLost(t)
	follow(t, end, nil)
	nothingLeft(t)
}

// TestStatefulShort goes through the guide until a cluster is lost: a replica in each cluster, a row written here and read there, a pod that is
// deleted returns to its data. Then it tears down what there is.
func TestStatefulShort(t *testing.T) {
	if *long {
		t.Skip("SKIPPED: TestStateful does the same and more")
	}
	use, end := parts(t)
	use, _, found := strings.Cut(use, "\n## Lose a cluster and get it back\n")
	if !found {
		t.Fatal("the guide has no heading Lose a cluster and get it back")
	}
	outputs := follow(t, use, nil)
	judge(t, outputs, use, rows[:2])
	check(t, outputs, placed)
	follow(t, end, regexp.MustCompile(` nice$`)) // the short form has no third cluster
	nothingLeft(t)
}

// parts are the guide, and its end, which takes everything away.
func parts(t *testing.T) (use, end string) {
	t.Helper()
	clusters.Step(t)
	for _, c := range clusters.Clusters { // that are given may have a peering
		if peers := c.TryKubectl("", "get", "foreignclusters", "-o", "jsonpath={.items[*].metadata.name}"); peers.Code == 0 {
			for _, peer := range strings.Fields(peers.Out) {
				c.Liqoctl(t, "unpeer", "out-of-band", peer)
			}
		}
		c.Uninstalled(t)
	}
	text, err := guide.Read("../..", example)
	if err != nil {
		t.Fatal(err)
	}
	use, end, found := strings.Cut(text, "\n## Tear down\n")
	if !found {
		t.Fatal("the guide has no heading Tear down")
	}
	return use, end
}

// nothingLeft checks both clusters after the end of the guide.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, c := range clusters.Clusters {
		if left := c.TryKubectl("", "get", "namespace", namespace); left.Code == 0 {
			t.Errorf("%s: the namespace is left: %s", c.Name, left)
		}
		// Kubernetes removes a volume after its claim has gone.
		env.Eventually(t, env.Hang, c.Name+" has no volumes", func() (string, bool) {
			left := c.TryKubectl("", "get", "persistentvolumes", "-o", "name")
			return left.String(), left.Code == 0 && left.Out == ""
		})
	}
}

// follow runs the commands of a part of the guide, except those that match without.
func follow(t *testing.T, text string, without *regexp.Regexp) []guide.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	bin, err := filepath.Abs(clusters.Bin)
	if err != nil {
		t.Fatal(err)
	}
	shell := guide.Shell{
		Folder: filepath.Join("../../examples", example),
		Env:    []string{"PATH=" + bin + ":" + clusters.Tools + ":" + os.Getenv("PATH"), "KUBECONFIG=" + turin.Kubeconfig(), "KUBECONFIG_LYON=" + lyon.Kubeconfig()},
		Ended: func(one guide.Output) {
			t.Logf("$ %s\n%s", one.Command.Line, one.Text)
			clusters.Measure(one.Command.Line[:min(len(one.Command.Line), 58)], "%.1f s", one.Took.Seconds())
		},
	}
	outputs, err := shell.Run(ctx, slices.DeleteFunc(guide.Commands(text), func(command guide.Command) bool {
		return own.MatchString(command.Line) || without != nil && without.MatchString(command.Line)
	}))
	if err != nil {
		turin.Show(t)
		t.Fatal(err)
	}
	return outputs
}

// rows are the guide's, in the order in which it writes them.
var rows = []string{"1 | Smith", "2 | Rossi", "3 | Martin"}

// judge checks that each row is read from the time when it was written on, and that all of want are written.
func judge(t *testing.T, outputs []guide.Output, text string, want []string) {
	t.Helper()
	written := 0
	for _, one := range outputs {
		switch command := one.Command.Line; {
		case strings.Contains(command, "people.sql"), strings.Contains(command, "INSERT INTO"):
			written++
		case strings.Contains(command, "SELECT"):
			for i, row := range rows {
				if have := strings.Contains(one.Text, row); have != (i < written) {
					t.Errorf("%s: after %d writes, row %q is there: %v\n%s", command, written, row, have, one.Text)
				}
			}
			if written == 1 && !strings.Contains(text, "```\n"+one.Text+"```") {
				t.Errorf("the guide shows another table than\n%s", one.Text)
			}
		}
	}
	if written != len(want) {
		t.Errorf("the guide writes %d rows, want %d", written, len(want))
	}
}

// What the commands of the guide print, by regular expressions.
var (
	placed = []guide.Want{
		{Command: "kubectl get foreignclusters", Match: []string{`lyon +OutOfBand +Established`}},
		{Command: "kubectl get pods -n liqo-demo -o wide", Match: []string{
			`db-0 +1/1 +Running`, `db-1 +1/1 +Running`, `db-[01] .* turin-`, `db-[01] .* liqo-lyon`, `arbitrator-.* turin-`,
		}},
		{Command: "kubectl get pvc -n liqo-demo", Match: []string{`data-db-0 +Bound .* liqo`, `data-db-1 +Bound .* liqo`}},
	}
	moved = guide.Want{Command: "kubectl get $THERE -n liqo-demo -o wide", Match: []string{`db-[01] +1/1 +Running .* liqo-nice`}}
)

func check(t *testing.T, outputs []guide.Output, wants []guide.Want) {
	t.Helper()
	if err := guide.Check(outputs, wants); err != nil {
		t.Error(err)
	}
}

// turinLost: the cluster with the majority loses power. When it is back, both replicas have every row without any command.
func turinLost(t *testing.T) {
	t.Helper()
	clusters.Do(t, "node", "stop", "turin", turin.Nodes[0].Name)
	clusters.Do(t, "node", "start", "turin", turin.Nodes[0].Name)
	for _, pod := range []string{"db-0", "db-1"} {
		took := env.Eventually(t, 10*time.Minute, pod+" has every row after turin was lost", func() (string, bool) {
			result := turin.TryKubectl("", "exec", "-n", namespace, pod, "--", "sh", "-c", selectAll)
			for _, row := range rows {
				if !strings.Contains(result.Out, row) {
					return fmt.Sprint(result), false
				}
			}
			return "", result.Code == 0
		})
		clusters.Measure(pod+" answers again after turin was lost", "%.1f s", took.Seconds())
	}
}
