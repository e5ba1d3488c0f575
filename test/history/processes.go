// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// processWatcher scans the processes of this machine, on which all nodes run: a process that has the variable forPod in its environment
// belongs to a container of these tests. The scan still sees a pod that was deleted by force, or whose API server has lost the node.
type processWatcher struct {
	proc   string
	every  time.Duration
	record func(Fact)

	known map[int]*Process
	// others are the processes that belong to no container of these tests, with the time at which they were first seen. Such a process
	// can still become a container's: the runtime changes its image and control group while it starts the container.
	others map[int]time.Time
}

// settledAfter is the age after which a process is not checked again.
const settledAfter = 10 * time.Second

// forPod is the environment variable that holds the UID of the consumer's pod: a pod at a provider reads that as its own.
const forPod = "FOR_POD"

var ofPod = regexp.MustCompile(`/pod([0-9a-f]{8}-[0-9a-f-]{27})/([0-9a-f]{64})`)

func (w *processWatcher) follow(ctx context.Context) error {
	w.known, w.others = map[int]*Process{}, map[int]time.Time{}
	boot, err := w.boot()
	if err != nil {
		return err
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		if err := w.scan(boot); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			for _, p := range w.known {
				w.record(Fact{Process: p})
			}
			return nil
		case <-tick.C:
		}
	}
}

// boot returns when the machine was started: /proc shows the start of a process in ticks since then.
func (w *processWatcher) boot() (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(w.proc, "uptime"))
	now := now()
	if err != nil {
		return now, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	up, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return now, fmt.Errorf("uptime %q: %w", text, err)
	}
	return now.Add(-time.Duration(up * float64(time.Second))), nil
}

func (w *processWatcher) scan(boot time.Time) error {
	dir, err := os.Open(w.proc)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	now := now()
	present := map[int]bool{}
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		present[id] = true
		if since, ok := w.others[id]; ok && now.Sub(since) > settledAfter {
			continue
		}
		w.check(id, now, boot)
	}
	for id := range w.known {
		if !present[id] {
			w.end(id)
		}
	}
	for id := range w.others {
		if !present[id] {
			delete(w.others, id)
		}
	}
	return nil
}

func (w *processWatcher) check(id int, now, boot time.Time) {
	started, alive := w.started(id, boot)
	if known := w.known[id]; known != nil {
		if alive && started.Equal(known.Started) {
			updated := *known
			updated.Until = now
			w.known[id] = &updated
			return
		}
		w.end(id)
	}
	if !alive {
		return
	}
	if found := w.read(id); found != nil {
		found.Started, found.Until = started, now
		w.known[id] = found
		delete(w.others, id)
		w.record(Fact{Process: found})
	} else if w.others[id].IsZero() {
		w.others[id] = now
	}
}

func (w *processWatcher) end(id int) {
	w.record(Fact{Process: w.known[id], Gone: true})
	delete(w.known, id)
}

func (w *processWatcher) read(id int) *Process {
	dir := filepath.Join(w.proc, strconv.Itoa(id))
	groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return nil
	}
	found := ofPod.FindSubmatch(groups)
	if found == nil {
		return nil
	}
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return nil
	}
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		// A pod that the consumer runs itself has one UID only, that of its control group.
		if value, ok := bytes.CutPrefix(variable, []byte(forPod+"=")); ok && !bytes.Equal(value, found[1]) {
			return &Process{ID: id, For: string(value), PodUID: string(found[1]), Container: string(found[2])}
		}
	}
	return nil
}

// started returns when the process was started, to a hundredth of a second, and whether it is alive.
func (w *processWatcher) started(id int, boot time.Time) (time.Time, bool) {
	stat, err := os.ReadFile(filepath.Join(w.proc, strconv.Itoa(id), "stat"))
	if err != nil {
		return time.Time{}, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return time.Time{}, false
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	return boot.Add(time.Duration(ticks) * 10 * time.Millisecond), true
}
