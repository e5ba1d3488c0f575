// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/internal/network/report"
)

type answering string

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// FuzzGatewayReport: of whatever a gateway sends, the last valid line counts. A peer is enqueued if its state changes, and not if the same line comes again.
func FuzzGatewayReport(f *testing.F) {
	const line = `{"lane":1,"node":"n","publicKey":"k","peers":[{"clusterID":"milan","up":true,"rttMicroseconds":800,"nodes":[{"name":"a",` +
		`"lane":1,"silentMilliseconds":5}]},{"clusterID":"rome"}]}` + "\n"
	f.Add(line)
	f.Add(line + line)
	f.Add(line + strings.Replace(line, `"up":true`, `"up":false`, 1))
	f.Add(line + strings.Replace(line, "800", "3000", 1))
	f.Add(line + strings.Replace(line, "800", "-9223372036854775808", 1))
	f.Add(line + strings.Replace(line, "800", "9223372036854775807", 1))
	f.Add(line + strings.Replace(line, `"rome"`, `"milan"`, 1)) // one peer twice
	f.Add(line + strings.Replace(line, `"rome"`, `""`, 1))      // no cluster ID
	f.Add(line + `{"lane":99,"error":"no device","peers":null}`)
	f.Add(line + "null\n" + line[:40])
	f.Add(line + "[]\n")
	f.Add("\n\n")
	f.Add(strings.Repeat("x", 5000))
	f.Fuzz(func(t *testing.T, text string) {
		g := &Reader{connect: func(*tls.Config) *http.Client { return &http.Client{Transport: answering(text)} }, Updates: newUpdates()}
		follower := &follower{observation: report.Observation{Address: "192.0.2.1", Silent: true}, alarm: time.NewTimer(time.Hour)}
		defer follower.alarm.Stop()
		lines, err := g.listen(context.Background(), follower)
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("after %d lines: %v", lines, err)
		}
		var last *report.Gateway
		valid := 0
		for one := range strings.Lines(text) {
			var reported report.Gateway
			if json.Unmarshal([]byte(one), &reported) != nil {
				break
			}
			last = &reported
			valid++
		}
		if lines != valid || (last != nil) == follower.observation.Silent {
			t.Fatalf("%d lines are read, want %d, silent: %t", lines, valid, follower.observation.Silent)
		}
		if last == nil {
			if len(g.Updates.waiting) > 0 {
				t.Errorf("without a report, %q are enqueued", g.Updates.waiting)
			}
			return
		}
		if have, want := mustText(t, follower.observation.Reported), mustText(t, *last); have != want {
			t.Errorf("%s counts, want %s", have, want)
		}
		if !slices.Contains(g.Updates.waiting, report.EveryPeer) {
			t.Errorf("after the first report, %q are enqueued", g.Updates.waiting)
		}
		g.Updates = newUpdates()
		again := *last
		g.note(follower, &again)
		distinct := map[string]bool{}
		for i := range last.Peers {
			distinct[last.Peers[i].ClusterID] = true
		}
		if len(distinct) < len(last.Peers) || distinct[report.EveryPeer] {
			return // no gateway of ours reports a peer twice
		}
		if len(g.Updates.waiting) > 0 {
			t.Errorf("by the same report, %q are enqueued", g.Updates.waiting)
		}
		for i := range again.Peers {
			again.Peers = slices.Clone(last.Peers)
			again.Peers[i].Up = !again.Peers[i].Up
			if updates := report.ChangedPeers(&follower.observation, &report.Observation{Reported: again}); !slices.Equal(updates, []string{again.Peers[i].ClusterID}) {
				t.Errorf("when %q goes up or down, %q are enqueued", again.Peers[i].ClusterID, updates)
			}
		}
	})
}

func mustText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
