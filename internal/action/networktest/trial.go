// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"context"
	"fmt"
	"time"

	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/network/matrix"
)

// trial tries paths, some side by side.
type trial struct {
	local, remote Asker
	key           string
	paths         []path
	// settled is when Services must work.
	settled  time.Time
	progress action.Progress
	results  []Result
}

// run tries the small paths, then the large ones. The results are in the order of the paths.
func (t *trial) run(ctx context.Context) []Result {
	t.results = make([]Result, len(t.paths))
	t.stage(ctx, false, atOnce)
	t.stage(ctx, true, manyAtOnce)
	t.progress.Stop()
	return t.results
}

// stage tries those of one kind, and tells when all of one case are through.
func (t *trial) stage(ctx context.Context, large bool, sideBySide int) {
	var all []int
	left, good := map[string]int{}, map[string]int{}
	for i := range t.paths {
		if t.paths[i].large == large {
			all = append(all, i)
			left[t.paths[i].title]++
		}
	}
	next, ended := make(chan int), make(chan int)
	defer close(next)
	for range min(sideBySide, len(all)) {
		go func() {
			for i := range next {
				t.results[i] = t.try(ctx, &t.paths[i])
				ended <- i
			}
		}()
	}
	total := map[string]int{}
	for title, count := range left {
		total[title] = count
	}
	for begun, through := 0, 0; through < len(all); {
		var feed chan<- int
		candidate := 0
		if begun < len(all) {
			feed, candidate = next, all[begun]
		}
		select {
		case feed <- candidate:
			begun++
			l := &t.paths[candidate]
			t.progress.Start(fmt.Sprintf("Trying %d of %d with %s: %s, %s, from %s to %s", begun, len(all), size(l.bytes), l.title, l.protocol, l.fromCluster, l.toCluster))
		case i := <-ended:
			through++
			l := &t.paths[i]
			left[l.title]--
			if t.results[i].Error == "" {
				good[l.title]++
			}
			if left[l.title] == 0 {
				t.progress.Info(fmt.Sprintf("%s, %s: %d of %d ways work", l.title, size(l.bytes), good[l.title], total[l.title]))
			}
		}
	}
}

// try tries one path. What goes through a Service may fail until Services must work; all else must work at once.
func (t *trial) try(ctx context.Context, l *path) Result {
	if l.impossible != "" {
		return l.judge(matrix.Answer{})
	}
	if small := t.smaller(l); small != nil && small.Error != "" && small.Source == "" {
		return l.judge(matrix.Answer{Error: "not tried, since not even " + small.Size() + " came through"})
	}
	asker := t.local
	if l.remote {
		asker = t.remote
	}
	for {
		answer, err := asker.Ask(ctx, Question{Namespace: l.namespace, Pod: l.pod, Key: t.key, Protocol: l.protocol, Target: l.target, Bytes: l.bytes})
		if err != nil {
			answer = matrix.Answer{Error: fmt.Sprintf("the pod %s/%s could not be asked: %v", l.namespace, l.pod, err)}
		}
		result := l.judge(answer)
		if result.Error == "" || !l.service || time.Now().After(t.settled) || ctx.Err() != nil {
			return result
		}
		select {
		case <-ctx.Done():
			return result
		case <-time.After(settlePause):
		}
	}
}

// smaller is what came of the small path on the same way; nil if there is none. It was tried in the stage before.
func (t *trial) smaller(l *path) *Result {
	for i := range t.paths {
		one := &t.paths[i]
		if l.large && !one.large && one.remote == l.remote && one.pod == l.pod && one.protocol == l.protocol && one.target == l.target && one.title == l.title {
			return &t.results[i]
		}
	}
	return nil
}
