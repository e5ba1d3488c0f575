// SPDX-License-Identifier: Apache-2.0

// Package stateful runs the commands of the guide in examples/stateful-applications line by line: a database with a replica in each of two
// clusters loses a pod and a cluster, and no row. After the guide's commands it loses the cluster with the majority as well.
// Then a replica and its volume move to a third cluster.
//
// It knows what a reader knows: the guide, the output, kubectl. It brings the playground's scenario stateful up and takes it down.
// Run it with: make test-long SUITE=stateful
package stateful

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")

	clusters    *env.Env
	turin, lyon *env.Cluster
)

const (
	guide     = "../../examples/stateful-applications"
	namespace = "liqo-demo"
	selectAll = `MYSQL_PWD=$PASSWORD mariadb --no-defaults --host=$POD_IP --user=user --table my_database --execute='SELECT * FROM People'`
)

// own are the commands of the guide that make and remove clusters and images, and choose what env has chosen.
var own = regexp.MustCompile(`^(make |bin/playground |for image |export |cd )`)

func TestMain(m *testing.M) {
	env.Main(m, "stateful", keep, func(e *env.Env) error {
		clusters, turin, lyon = e, e.Clusters[0], e.Clusters[1]
		return e.LoadNeeded("galera-image.tar", "mover-image.tar")
	})
}

// TestStateful goes through the guide.
func TestStateful(t *testing.T) {
	clusters.Step(t)
	text, err := os.ReadFile(filepath.Join(guide, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	use, end, found := strings.Cut(string(text), "\n## Tear down\n")
	if !found {
		t.Fatal("the guide has no heading Tear down")
	}
	outputs := run(t, commands(use))
	if len(outputs) < 20 {
		t.Errorf("the guide has %d commands, which is too few to be it", len(outputs))
	}
	judge(t, outputs, use)
	turinLost(t)
	run(t, commands(end))
	if left := turin.TryKubectl("", "get", "namespace", namespace); left.Code == 0 {
		t.Errorf("the namespace is left: %s", left)
	}
}

// commands returns the commands of a part of the guide, one for each line.
func commands(text string) (all []string) {
	for i, part := range strings.Split(text, "```") {
		if i%2 == 0 || !strings.HasPrefix(part, "sh\n") {
			continue
		}
		for line := range strings.Lines(strings.TrimPrefix(part, "sh\n")) {
			command, _, _ := strings.Cut(line, "   #") // the remark
			if command = strings.TrimSpace(command); command != "" && !own.MatchString(command) {
				all = append(all, command)
			}
		}
	}
	return all
}

// output is a command and what it printed.
type output struct{ command, text string }

// run types commands into one shell, as a reader does, and stops at the first that fails.
func run(t *testing.T, commands []string) (all []output) {
	t.Helper()
	const next = "==next=="
	script := "set -e\n"
	for _, command := range commands {
		script += "echo " + next + "\n" + command + "\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir = guide
	shell.Stdin = nil
	bin, err := filepath.Abs(clusters.Bin)
	if err != nil {
		t.Fatal(err)
	}
	shell.Env = append(os.Environ(), "PATH="+bin+":"+clusters.Tools+":"+os.Getenv("PATH"), "KUBECONFIG="+turin.Kubeconfig(), "KUBECONFIG_LYON="+lyon.Kubeconfig())
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	shell.Stdout, shell.Stderr = write, write
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close() // the shell has its own
	start := time.Now()
	report := func() {
		if len(all) > 0 {
			last := all[len(all)-1]
			t.Logf("$ %s\n%s", last.command, last.text)
			clusters.Measure(shorten(last.command), "%.1f s", time.Since(start).Seconds())
		}
		start = time.Now()
	}
	for lines := bufio.NewScanner(read); lines.Scan(); {
		if lines.Text() == next {
			report()
			all = append(all, output{command: commands[len(all)]})
		} else if len(all) > 0 {
			all[len(all)-1].text += lines.Text() + "\n"
		}
	}
	report()
	if err := shell.Wait(); err != nil {
		turin.Show(t)
		t.Fatalf("the guide's command number %d failed: %v", len(all), err)
	}
	return all
}

func shorten(command string) string { return command[:min(len(command), 58)] }

// rows are the guide's, in the order in which it writes them.
var rows = []string{"1 | Smith", "2 | Rossi", "3 | Martin"}

// judge compares what the commands printed with what the guide announces.
func judge(t *testing.T, outputs []output, text string) {
	t.Helper()
	written := 0
	for _, one := range outputs {
		switch {
		case strings.Contains(one.command, "people.sql"), strings.Contains(one.command, "INSERT INTO"):
			written++
		case strings.Contains(one.command, "SELECT"):
			for i, row := range rows {
				if have := strings.Contains(one.text, row); have != (i < written) {
					t.Errorf("%s: after %d writes, row %q is there: %v\n%s", one.command, written, row, have, one.text)
				}
			}
			if written == 1 && !strings.Contains(text, "```\n"+one.text+"```") {
				t.Errorf("the guide shows another table than\n%s", one.text)
			}
		}
		for command, wants := range map[string][]string{
			"kubectl get foreignclusters":             {`lyon +OutOfBand +Established`},
			"kubectl get pods -n liqo-demo -o wide":   {`db-0 +1/1 +Running`, `db-1 +1/1 +Running`, `db-[01] .* turin-control-plane`, `db-[01] .* liqo-lyon`, `arbitrator-.* turin-control-plane`},
			"kubectl get $THERE -n liqo-demo -o wide": {`db-[01] +1/1 +Running .* liqo-nice`},
			"kubectl get pvc -n liqo-demo":            {`data-db-0 +Bound .* liqo`, `data-db-1 +Bound .* liqo`},
		} {
			for _, want := range wants {
				if one.command == command && !regexp.MustCompile(want).MatchString(one.text) {
					t.Errorf("%s: want %q in\n%s", command, want, one.text)
				}
			}
		}
	}
	if written != len(rows) {
		t.Errorf("the guide writes %d rows, want %d", written, len(rows))
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
