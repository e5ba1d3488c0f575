// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

// carriers: while UDP does not pass between the clusters, the tunnel goes over TLS, and returns to UDP afterwards. No connection of a pod breaks.
func carriers(t *testing.T) {
	const turns = 3
	for _, c := range both() {
		c.Install(t, "--set", "gateway.config.streamPort=443")
		c.Serve(t)
	}
	t.Cleanup(func() {
		for _, c := range both() {
			c.Kubectl(t, "delete", "namespace", env.Namespace, "--ignore-not-found", "--wait=false")
			c.Install(t)
		}
	})
	env.Peered(t, rome, milan)
	until := func(want string) time.Duration {
		t.Helper()
		return env.Eventually(t, env.Hang, "the tunnel goes over "+want, func() (string, bool) {
			view, err := rome.See(milan)
			if err != nil {
				return err.Error(), false
			}
			return view.Carrier + ": " + view.Lanes, view.Carrier == want && view.Lanes == "lane 0 up"
		})
	}
	until("UDP")
	download := connection(t)
	block := func() { clusters.Do(t, "fault", "allow", rome.Name, milan.Name, "tcp/1-65535", "icmp") }
	open := func() { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) }
	t.Cleanup(open)
	for range turns {
		block()
		clusters.Measure("UDP blocked: the status has TLS", "%.1f s", until("TLS").Seconds())
		open()
		clusters.Measure("UDP opened: the status has UDP", "%.1f s", until("UDP").Seconds())
	}
	block()
	until("TLS")
	clusters.Measure("connectivity matrix over TLS", "%d checks", clusters.Matrix(t, rome, milan)+clusters.Matrix(t, milan, rome))
	open()
	until("UDP")
	counts, gaps := download()
	clusters.Measure("a connection of pods over all changes", "%d answers, %d lost, longest gap %.1f s, broken %d", counts.Good, counts.Lost, gaps.Seconds(), counts.Broken)
	if counts.Broken > 0 || counts.Good == 0 {
		t.Errorf("the connection of a pod: %+v", counts)
	}
}

// answers are what a client of one connection counts.
type answers struct{ Good, Lost, Broken int }

// connection sends requests over one connection from a pod of rome to one of milan, until the result is asked for.
func connection(t *testing.T) (result func() (last answers, longest time.Duration)) {
	t.Helper()
	view, err := rome.See(milan)
	if err != nil {
		t.Fatal(err)
	}
	client, server := clusters.AllServers(t, rome)[0], clusters.AllServers(t, milan)[0]
	address, err := view.Pod(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	place, err := client.Net()
	if err != nil {
		t.Fatal(err)
	}
	command := place.Command(filepath.Join(clusters.Bin, "traffic"), "stream", "milan="+env.Endpoint(address, env.EchoPort))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var last answers
	var longest time.Duration
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line struct {
				Kind     string
				From, To time.Time
				answers
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue // the last line of a client that was stopped
			}
			last = line.answers
			if line.Kind == "gap" {
				longest = max(longest, line.To.Sub(line.From))
			}
		}
	})
	stop := sync.OnceFunc(func() {
		_ = command.Process.Kill()
		reader.Wait()
		_ = command.Wait() // killed
	})
	t.Cleanup(stop)
	return func() (answers, time.Duration) {
		stop()
		return last, longest
	}
}
