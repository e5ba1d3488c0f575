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

// machine looks at the processes of this machine, on which all nodes are: whoever has the variable forPod in its environment is a
// container's of these tests. A pod that was deleted by force, or whose node is lost to its API server, is still seen here.
type machine struct {
	proc  string
	every time.Duration
	tell  func(Fact)

	known map[int]*Process
	// others are of no interest, since when they were first seen. A process may become one of interest: its image and its
	// control group are changed while a container is being started.
	others map[int]time.Time
}

// grown is the age at which a process is taken for what it is.
const grown = 10 * time.Second

// forPod is the environment variable that holds the UID of the pod here.
const forPod = "FOR_POD"

var ofPod = regexp.MustCompile(`/pod([0-9a-f]{8}-[0-9a-f-]{27})/([0-9a-f]{64})`)

func (m *machine) follow(ctx context.Context) error {
	m.known, m.others = map[int]*Process{}, map[int]time.Time{}
	boot, err := m.boot()
	if err != nil {
		return err
	}
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		if err := m.look(boot); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			for _, p := range m.known {
				m.tell(Fact{Process: p})
			}
			return nil
		case <-tick.C:
		}
	}
}

// boot is when the machine was started: processes tell their beginning in ticks since then.
func (m *machine) boot() (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(m.proc, "uptime"))
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

func (m *machine) look(boot time.Time) error {
	dir, err := os.Open(m.proc)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	now := now()
	there := map[int]bool{}
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		there[id] = true
		if since, ok := m.others[id]; ok && now.Sub(since) > grown {
			continue
		}
		m.one(id, now, boot)
	}
	for id := range m.known {
		if !there[id] {
			m.end(id)
		}
	}
	for id := range m.others {
		if !there[id] {
			delete(m.others, id)
		}
	}
	return nil
}

func (m *machine) one(id int, now, boot time.Time) {
	began, alive := m.began(id, boot)
	if known := m.known[id]; known != nil {
		if alive && began.Equal(known.Began) {
			again := *known
			again.Until = now
			m.known[id] = &again
			return
		}
		m.end(id)
	}
	if !alive {
		return
	}
	if found := m.read(id); found != nil {
		found.Began, found.Until = began, now
		m.known[id] = found
		delete(m.others, id)
		m.tell(Fact{Process: found})
	} else if m.others[id].IsZero() {
		m.others[id] = now
	}
}

func (m *machine) end(id int) {
	m.tell(Fact{Process: m.known[id], Gone: true})
	delete(m.known, id)
}

func (m *machine) read(id int) *Process {
	dir := filepath.Join(m.proc, strconv.Itoa(id))
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
		if value, ok := bytes.CutPrefix(variable, []byte(forPod+"=")); ok {
			return &Process{ID: id, For: string(value), PodUID: string(found[1]), Container: string(found[2])}
		}
	}
	return nil
}

// began is when the process was started, to a hundredth of a second, and whether it is alive.
func (m *machine) began(id int, boot time.Time) (time.Time, bool) {
	stat, err := os.ReadFile(filepath.Join(m.proc, strconv.Itoa(id), "stat"))
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
