// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/liqo/internal/kube/kubetest/single"
)

func TestPacket(t *testing.T) {
	in := header{kind: echoRequest, lane: 3, sender: 1 << 60, sequence: pathSequence | 1420}
	for _, size := range []int{0, headerSize, 1000} {
		packet := in.write(nil, size)
		if len(packet) != max(size, headerSize) {
			t.Errorf("%d bytes, asked for %d", len(packet), size)
		}
		if out, ok := parse(packet); !ok || out != in {
			t.Errorf("%+v, want %+v", out, in)
		}
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"short":   func(p []byte) []byte { return p[:headerSize-1] },
		"empty":   func([]byte) []byte { return nil },
		"magic":   func(p []byte) []byte { p[0]++; return p },
		"version": func(p []byte) []byte { p[4]++; return p },
		"kind":    func(p []byte) []byte { p[5] = 9; return p },
		"lane":    func(p []byte) []byte { p[6] = maxLanes; return p },
		"zero":    func(p []byte) []byte { p[7] = 1; return p },
	} {
		if _, ok := parse(spoil(in.write(nil, 100))); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestReport(t *testing.T) {
	var all []Observation
	for i := range 100 {
		all = append(all, Observation{ClusterID: fmt.Sprintf("%036d", i), Lane: i%4 - 1, Up: []int{1, 7}})
	}
	var back []Observation
	bodies := writeReport("node-1", all)
	for _, body := range bodies {
		if headerSize+len(body) > maxReport {
			t.Errorf("packet of %d bytes", headerSize+len(body))
		}
		node, some, ok := parseReport(body)
		if !ok || node != "node-1" {
			t.Fatalf("%q %v", node, ok)
		}
		back = append(back, some...)
	}
	if diff := cmp.Diff(all, back); diff != "" {
		t.Error(diff)
	}
	if writeReport(strings.Repeat("n", 300), all) != nil {
		t.Error("a name that no node can have was sent")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(header{kind: echoRequest}.write(nil, 100))
	observation := header{kind: observations}.write(nil, headerSize)
	for _, body := range writeReport("n", []Observation{{ClusterID: "c", Lane: 1, Up: []int{0}}}) {
		f.Add(append(observation, body...))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		h, ok := parse(packet)
		if !ok {
			return
		}
		if h.lane >= maxLanes {
			t.Fatalf("lane %d", h.lane)
		}
		node, all, ok := parseReport(packet[headerSize:])
		if !ok {
			return
		}
		var back []Observation
		for _, body := range writeReport(node, all) {
			_, some, ok := parseReport(body)
			if !ok {
				t.Fatalf("what was read cannot be written: %q %v", node, all)
			}
			back = append(back, some...)
		}
		if diff := cmp.Diff(all, back); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestLimiter(t *testing.T) {
	single.Goroutine(t)
	var l limiter
	one := netip.MustParseAddr("10.0.0.1")
	allowed := 0
	for range 10 * echoBurst {
		if l.allow(one, start) {
			allowed++
		}
	}
	if allowed != echoBurst {
		t.Errorf("%d at once", allowed)
	}
	if !l.allow(one, start.Add(time.Second)) {
		t.Error("a second later still refused")
	}
	if !l.allow(netip.MustParseAddr("10.0.0.2"), start) {
		t.Error("another source is refused")
	}
	source := netip.MustParseAddr("10.1.0.0")
	for range 2 * maxSources {
		l.allow(source, start)
		source = source.Next()
	}
	if len(l.sources) > maxSources {
		t.Errorf("%d sources are remembered", len(l.sources))
	}
	if !l.allow(source.Next(), start.Add(2*time.Second)) {
		t.Error("a new source is refused after the flood has ended")
	}
}

func TestObservations(t *testing.T) {
	var s Observations
	s.Add(start, NodeReport{Node: "unmanaged", Observations: []Observation{{ClusterID: "rome"}}})
	s.Keep([]string{"n1", "n2"}, []string{"milan"})
	report := func(node string, sequence uint64, lane int) {
		s.Add(start.Add(time.Duration(sequence)*time.Second), NodeReport{Node: node, sender: 7, sequence: sequence, Observations: []Observation{
			{ClusterID: "milan", Lane: lane, Up: []int{lane}}, {ClusterID: "unknown", Lane: 1},
		}})
	}
	report("n1", 1, 0)
	report("n1", 2, 1)
	report("n1", 4, 1)
	report("unmanaged", 1, 1)
	want := []NodeObservation{{Node: "n1", Last: start.Add(4 * time.Second), Lane: 1, Up: []int{1}, Lost: 0.25}, {Node: "n2", Lane: -1}}
	if diff := cmp.Diff(want, s.Of("milan")); diff != "" {
		t.Error(diff)
	}
	s.Keep([]string{"n2"}, []string{"milan"})
	s.Keep([]string{"n1", "n2"}, []string{"milan"})
	if diff := cmp.Diff([]NodeObservation{{Node: "n1", Lane: -1}, {Node: "n2", Lane: -1}}, s.Of("milan")); diff != "" {
		t.Errorf("a deleted node is remembered: %s", diff)
	}
}
