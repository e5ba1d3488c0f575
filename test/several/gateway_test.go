// SPDX-License-Identifier: Apache-2.0

package several

import (
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// gatewayRestarts: a connection from one provider to the other passes the gateway of rome, which tracks it. It survives that the gateway is killed,
// and that its pod is replaced: the next one tracks it from the client's next packet on, with the same address and port.
func gatewayRestarts(t *testing.T) {
	peered(t, star()...)
	a := deploy(t, rome, "tracked", milan, turin)
	a.answersEverywhere(t, []*env.Cluster{milan, turin}, a.in)
	state := stream(t, a.at(t, milan), traffic.Endpoint(a.endpoint(t, milan, turin), 7000))
	answering(t, state, time.Now())

	start := time.Now()
	rome.Kill(t, "gateway")
	answering(t, state, start)
	env.Eventually(t, env.Hang, "the network of rome works", func() (string, bool) {
		condition, err := networks.Condition(rome, turin)
		return fmt.Sprintf("%+v, %v", condition, err), condition.Status == "Established"
	})
	if now := state(); now.Broken > 0 {
		t.Errorf("the connection broke when the gateway of rome was killed: %s", now.Why)
	}

	start = time.Now()
	rome.Kubectl(t, "-n", "liqo", "delete", "pod", "-l", "app.kubernetes.io/name=gateway", "--wait=true", "--timeout=60s")
	took := answering(t, state, time.Now())
	clusters.Measure("provider to provider, the consumer's gateway pod replaced", "answers again after %.1f s", time.Since(start).Seconds())
	if now := state(); now.Broken > 0 {
		t.Errorf("the connection broke when the gateway's pod was replaced: %s", now.Why)
	}
	if took > outage {
		t.Errorf("no answer for %s after the gateway's pod was deleted", took)
	}
}

// report is what the program that sends traffic prints.
type report struct {
	Kind     string
	Answered time.Time
	Broken   int
	Why      string
}

// answering waits for an answer that came after a time.
func answering(t *testing.T, state func() report, after time.Time) time.Duration {
	t.Helper()
	return env.Eventually(t, env.Hang, "requests are answered", func() (string, bool) {
		now := state()
		return fmt.Sprintf("%+v", now), now.Answered.After(after)
	})
}

// stream keeps a connection with requests open until the end of the test. The function that it returns reports the present state.
func stream(t *testing.T, from netns.Place, address string) (state func() report) {
	t.Helper()
	cmd := from.Command(program(), "stream", "there="+address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var last report
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := json.NewDecoder(out); ; {
			var one report
			if lines.Decode(&one) != nil {
				return
			}
			if one.Kind == "now" {
				mu.Lock()
				last = one
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have exited
		reading.Wait()
		_ = cmd.Wait()
	})
	return func() report {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}
