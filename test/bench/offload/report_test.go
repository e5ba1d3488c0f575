// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// results are all measurements, as the JSON file contains them.
type results struct {
	Machine    string
	Bursts     []burst
	Writes     map[string]objectWrites
	Idle       *idlePeriod `json:",omitempty"`
	Restart    *restarted
	MemoryIdle memory
	Rows       []row
	Growth     map[string][]grown `json:",omitempty"` // by what has grown
}

// row is one line of the table: the value of the reference, our bound and aim, and the measured value.
type row struct {
	Measure, Reference string
	Must, Aim          float64 // upper bounds, if Bounded
	Bounded            bool
	Measured           float64
	N                  int
	Verdict, Remark    string `json:",omitempty"`
}

func (r *results) add(t *testing.T, b burst) {
	t.Helper()
	t.Log(b)
	r.Bursts = append(r.Bursts, b)
}

func cores() int { return runtime.NumCPU() }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// of returns a value of all bursts like the given one.
func (r *results) of(like burst, value func(burst) float64) (all []float64) {
	for _, b := range r.Bursts {
		if b.Pods == like.Pods && b.Offloaded == like.Offloaded && b.Real == like.Real {
			all = append(all, value(b))
		}
	}
	return all
}

// bound adds a row with a bound, if there are values.
func (r *results) bound(measure, reference string, must, aim float64, values []float64) {
	if len(values) == 0 {
		return
	}
	w := row{Measure: measure, Reference: reference, Must: must, Aim: aim, Bounded: true, Measured: median(values), N: len(values), Verdict: "met"}
	if w.Measured > must {
		w.Verdict = "MISSED"
	}
	if len(values) > 1 {
		w.Remark = fmt.Sprintf("%.3g to %.3g", slices.Min(values), slices.Max(values))
	}
	r.Rows = append(r.Rows, w)
}

// value adds a row without a bound, if there are values.
func (r *results) value(measure, reference string, values []float64) {
	if len(values) == 0 {
		return
	}
	w := row{Measure: measure, Reference: reference, Measured: median(values), N: len(values)}
	if len(values) > 1 {
		w.Remark = fmt.Sprintf("%.3g to %.3g", slices.Min(values), slices.Max(values))
	}
	r.Rows = append(r.Rows, w)
}

// bySize are the reference's values for a burst, and our bounds.
var bySize = map[int]struct {
	ready, vanilla, ratio, back, visible, gone, rss, all string
	ratioMust, ratioAim, backMust, backAim               float64
}{
	10:   {ready: "0.63", vanilla: "0.20", ratio: "3.1", back: "0.07", visible: "0.21", gone: "0.23"},
	100:  {"5.00", "1.08", "4.6", "1.04", "2.11", "2.52", "89", "446", 2.5, 2.0, 0.3, 0.15},
	1000: {"38.2", "7.9", "4.8", "14.4", "15.5", "19.2", "126", "529", 2.5, 2.0, 1.5, 0.5},
}

func (r *results) tabulate(t *testing.T) {
	real, sizes := burst{Pods: 20, Offloaded: true, Real: true}, podCounts(t)
	most := burst{Pods: slices.Max(sizes), Offloaded: true}
	across := func(b burst) float64 { return b.per(b.Provider.Across) }
	bytes := func(b burst) float64 { return (b.Bytes.To + b.Bytes.Back) / float64(b.Pods) / 1000 }
	r.bound("API writes per pod, create to Ready, real kubelet", "26.4", 8, 6, r.of(real, burst.writesPerPod))
	r.bound("of them at the provider by the consumer", "1", 3, 3, r.of(real, across))
	for _, n := range sizes {
		like, plain, known := burst{Pods: n, Offloaded: true}, burst{Pods: n}, bySize[n]
		of := fmt.Sprintf("%d pods: ", n)
		if n >= 100 { // in smaller bursts the renewals of leases dominate
			r.bound(of+"API writes per pod, create to Ready, hollow", "11.7", 5, 4, r.of(like, burst.writesPerPod))
			r.bound(of+"of them at the provider by the consumer", "1", 3, 3, r.of(like, across))
			r.bound(of+"bytes between clusters per pod, creation (kB)", "28", 14, 8, r.of(like, bytes))
		}
		ready := func(b burst) float64 { return b.Ready }
		r.value(of+"all Ready (s)", known.ready, r.of(like, ready))
		r.value(of+"all Ready, vanilla (s)", known.vanilla, r.of(plain, ready))
		if offloaded, vanilla := r.of(like, ready), r.of(plain, ready); len(offloaded) > 0 && len(vanilla) > 0 {
			ratio := []float64{median(offloaded) / median(vanilla)}
			if known.ratioMust > 0 {
				r.bound(of+"all Ready, ratio to vanilla", known.ratio, known.ratioMust, known.ratioAim, ratio)
			} else {
				r.value(of+"all Ready, ratio to vanilla", known.ratio, ratio)
			}
		}
		back := r.of(like, func(b burst) float64 { return b.Back.P99 })
		if known.backMust > 0 {
			r.bound(of+"Ready at the provider to Ready at the consumer, p99 (s)", known.back, known.backMust, known.backAim, back)
		} else {
			r.value(of+"Ready at the provider to Ready at the consumer, p99 (s)", known.back, back)
		}
		r.value(of+"Ready at the provider to Ready at the consumer, p50 (s)", "", r.of(like, func(b burst) float64 { return b.Back.P50 }))
		r.value(of+"created to seen at the provider, p50 (s)", known.visible, r.of(like, func(b burst) float64 { return b.Visible.P50 }))
		r.value(of+"all gone (s)", known.gone, r.of(like, func(b burst) float64 { return b.Gone }))
	}
	perThousand := 1000 / float64(most.Pods)
	r.bound(fmt.Sprintf("CPU of Liqo's processes per 1,000 pods (s; bursts of %d)", most.Pods), "12.0", 5, 3,
		r.of(most, func(b burst) float64 { return b.CPU.Liqo * perThousand }))
	r.bound(
		fmt.Sprintf("memory of the virtual kubelet at %d pods, RSS (MiB)", most.Pods), bySize[most.Pods].rss, 70, 50,
		r.of(most, func(b burst) float64 { return b.Memory.of("virtual-kubelet") }),
	)
	r.bound(
		fmt.Sprintf("memory of all of Liqo at %d pods, RSS (MiB)", most.Pods), bySize[most.Pods].all, 280, 200,
		r.of(most, func(b burst) float64 { return b.Memory.RSS }),
	)
	r.ofObjects()
	if r.Idle != nil {
		others := 0
		for _, side := range []writes{r.Idle.Consumer, r.Idle.Provider} {
			for name, n := range side.ByCall {
				if !strings.Contains(name, " leases") && !strings.Contains(name, " nodes") {
					others += n
				}
			}
		}
		r.bound(fmt.Sprintf("idle %.0f s: writes that are neither leases nor node status", r.Idle.Seconds), "0", 0, 0, []float64{float64(others)})
	}
	if r.Restart != nil {
		r.bound(
			fmt.Sprintf("restart of the virtual kubelet with %d unchanged objects: writes of them", r.Restart.Objects), "", 0, 0,
			[]float64{float64(r.Restart.OfObjects.Total)},
		)
	}
}

func (r *results) ofObjects() {
	for _, step := range []struct {
		name, reference  string
		must, aim        float64
		latency          string
		slowest, stepAim float64
	}{
		{"ConfigMap create", "4", 2, 1, "10", 10, 10},
		{"Secret create", "4", 2, 1, "10", 10, 10},
		{"Service create", "4", 2, 1, "22", 22, 22},
		{"EndpointSlice of 1 create", "5", 3, 2, "18", 18, 18},
		{"EndpointSlice of 1 change", "4", 2, 2, "20", 20, 20},
		{"EndpointSlice of 100 create", "5", 3, 2, "26", 26, 26},
		{"EndpointSlice of 100 change", "4", 2, 2, "37", 37, 37},
	} {
		w, measured := r.Writes[step.name]
		if !measured {
			continue
		}
		r.bound(step.name+": API writes", step.reference, step.must, step.aim, []float64{w.per()})
		if w.Visible.N > 0 {
			r.bound(step.name+": seen at the provider, p50 (ms)", step.latency, step.slowest, step.stepAim, []float64{w.Visible.P50 * 1000})
		}
		if w.Missed > 0 {
			r.bound(step.name+": not seen at the provider within 15 s", "0", 0, 0, []float64{float64(w.Missed)})
		}
	}
}

// The table of a document is between these lines.
const (
	tableStart = "<!-- table of make bench-offload -->"
	tableEnd   = "<!-- end of that table -->"
)

// fill replaces the table of a document.
func fill(document, table string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("replace the table: %w", err)
	}
	before, rest, starts := strings.Cut(string(text), tableStart+"\n")
	_, after, ends := strings.Cut(rest, tableEnd+"\n")
	if !starts || !ends {
		return fmt.Errorf("replace the table: %s has no lines %q and %q", document, tableStart, tableEnd)
	}
	text = []byte(before + tableStart + "\n\n" + strings.TrimSpace(table) + "\n\n" + tableEnd + "\n" + after)
	if err := os.WriteFile(document, text, 0o644); err != nil {
		return fmt.Errorf("replace the table: %w", err)
	}
	return nil
}

// report prints the table, and writes the JSON file and, if asked, the document.
func (r *results) report(t *testing.T) {
	t.Helper()
	r.tabulate(t)
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s; reference: release 0.8.3 on the same class of machine\n\n| Measure | Reference | Must be | Aim | Measured here "+
		"(median) | |\n|---|---|---|---|---|---|\n", r.Machine)
	for _, w := range r.Rows {
		must, aim := "", ""
		if w.Bounded {
			must, aim = fmt.Sprintf("≤ %.3g", w.Must), fmt.Sprintf("%.3g", w.Aim)
		}
		fmt.Fprintf(
			&text, "| %s | %s | %s | %s | %.3g (n=%d%s) | %s |\n", w.Measure, w.Reference, must, aim, w.Measured, w.N,
			strings.TrimRight(", "+w.Remark, ", "), w.Verdict,
		)
	}
	for i := len(r.Bursts) - 1; i >= 0; i-- {
		if b := r.Bursts[i]; b.Offloaded && !b.Real && b.Pods == slices.Max(podCounts(t)) {
			fmt.Fprintf(&text, "\n| Memory with %d pods, MiB | RSS / anonymous / PSS |\n|---|---|\n%v", b.Pods, b.Memory)
			break
		}
	}
	text.WriteString(r.growthTable())
	fmt.Println(text.String())
	if *fills != "" && !t.Failed() {
		if err := fill(*fills, text.String()); err != nil {
			t.Error(err)
		}
	}
	body, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.WriteFile(*record, append(body, '\n'), 0o644)
	}
	if err != nil {
		t.Errorf("write the results: %v", err)
	}
}
