// SPDX-License-Identifier: Apache-2.0

// Package faults lets things fail while 200 offloaded pods of Deployments and Jobs run, and holds what became of them against the laws of
// offloading: no running pod is restarted or deleted, what has finished does not run again, nothing runs twice, and the clusters agree
// within 30 s after the cause has ended.
//
// It knows what package env knows. What happened is recorded and checked by command history, so that a test that looks away sees it, too. It
// brings the playground's scenario quick-start up and takes it away. Run it with: make faults e2e, or alone, with all causes at
// their full length: go test ./test/faults -v -long -timeout 90m. Jumps of the clock must be named, as they are the whole machine's:
// -causes "clock jumps"
package faults

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "all causes that touch nothing but the clusters, as long as the targets say")
	only = flag.String("causes", "", "comma separated parts of names of causes; empty: those that are quick, or all with -long")
	each = flag.Int("each", 20, "pods of each of ten Deployments and Jobs; fewer, if other work shares the machine, prove less")
	kept = flag.String("history", "", "file that keeps the history; empty: a temporary one")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider
)

func TestMain(m *testing.M) {
	env.Main(m, "quick-start", keep, func(b *env.Env) error {
		clusters, rome, milan = b, b.Clusters[0], b.Clusters[1]
		for _, name := range []string{"history", "stamp-image.tar"} {
			if _, err := os.Stat(filepath.Join(b.Bin, name)); err != nil {
				return fmt.Errorf("bin/%s is missing (%w); run: make faults", name, err)
			}
		}
		return nil
	})
}

// converge is what both clusters are given to agree after a cause has ended.
const converge = 30 * time.Second

// judging is the time that a cause may take after it was held, and the end of the test.
const judging = 150 * time.Second

// TestFaults makes one history of all causes.
func TestFaults(t *testing.T) {
	connected(t)
	offloaded(t)
	r := record(t)
	wish(t)
	r.say(t, mark{Kind: "steady"})
	for _, c := range causes() {
		if !chosen(c) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			// What has happened is judged even if the timeout leaves no time for more.
			if end, ends := t.Deadline(); ends && time.Until(end) < c.hold+judging {
				t.Fatal("no time is left for it")
			}
			happens(t, r, c)
		})
	}
	r.say(t, mark{Kind: "stop"})
	r.judge(t)
}

func chosen(c cause) bool {
	if *only == "" {
		return !c.named && (*long || !c.long)
	}
	for part := range strings.SplitSeq(*only, ",") {
		if strings.Contains(c.name, part) {
			return true
		}
	}
	return false
}

// happens lets a cause come and go.
func happens(t *testing.T, r *recorder, c cause) {
	r.say(t, mark{Kind: "begin", What: c.name, Nodes: c.nodes})
	began := time.Now()
	c.cut(t)
	<-time.After(time.Until(began.Add(c.hold))) // this is the fault; nothing is waited for
	if c.mend != nil {
		c.mend(t)
	}
	ended := time.Now()
	lasted := ended.Sub(began)
	said := r.say(t, mark{Kind: "end", What: c.name})
	clusters.Measure(c.name, "lasted %.0f s; both clusters agreed %.1f s after its end: %s", lasted.Seconds(), said.Took, said.Seen)
	if !said.Agree || said.Took > converge.Seconds() {
		t.Errorf("want both clusters to agree within %v, it took %.1f s: %s", converge, said.Took, said.Seen)
		rome.Show(t)
	}
	works(t, c.name, ended)
	calm(t, r)
}

// works: what is wished for after a cause comes about, which two clusters that agree about what was before do not show.
func works(t *testing.T, cause string, ended time.Time) {
	t.Helper()
	name := "canary-" + strconv.FormatInt(ended.UnixNano(), 36)
	within := func() time.Duration { return max(converge-time.Since(ended), time.Second) }
	env.Eventually(t, within(), "rome takes a ConfigMap", func() (string, bool) {
		said := rome.TryKubectl("", "-n", namespace, "create", "configmap", name, "--from-literal=after="+cause)
		return said.String(), said.Code == 0 || strings.Contains(said.Err, "AlreadyExists") // an answer may be lost
	})
	env.Eventually(t, within(), "the ConfigMap is in milan", func() (string, bool) {
		said := milan.TryKubectl("", "get", "configmaps", "-A", "--field-selector", "metadata.name="+name, "-o", "jsonpath={.items[*].data.after}")
		return said.String(), said.Out == cause
	})
	env.Eventually(t, within(), "the virtual node is Ready", func() (string, bool) {
		said := rome.TryKubectl("", "get", "node", virtualNode, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return said.String(), said.Out == "True"
	})
	env.Eventually(t, within(), "a pod in milan tells its log", func() (string, bool) {
		said := rome.TryKubectl("", "-n", namespace, "logs", "deployment/web-0", "--tail=1")
		return said.String(), said.Code == 0
	})
	clusters.Measure(cause+": something new", "worked %.1f s after its end", time.Since(ended).Seconds())
}

// calm is a time without a cause: what comes late is to be seen before the next one.
func calm(t *testing.T, r *recorder) {
	t.Helper()
	<-time.After(5 * time.Second)
	select {
	case err := <-r.over:
		t.Fatalf("the recorder has ended: %v", err)
	default:
	}
}
