// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"context"
	"fmt"
	"time"

	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/network/matrix"
)

// trial tests paths, several in parallel.
type trial struct {
	local, remote Asker
	key           string
	paths         []path
	// settled is the time from which Services must work.
	settled  time.Time
	progress action.Progress
	results  []Result
}

// run tests the small paths, then the large ones. The results have the order of the paths.
func (t *trial) run(ctx context.Context) []Result {
	t.results = make([]Result, len(t.paths))
	t.stage(ctx, false, atOnce)
	t.stage(ctx, true, manyAtOnce)
	t.progress.Stop()
	return t.results
}

// stage tests the small or the large paths, and reports each case when all of its paths are done.
func (t *trial) stage(ctx context.Context, large bool, parallel int) {
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
	for range min(parallel, len(all)) {
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
	for started, done := 0, 0; done < len(all); {
		var feed chan<- int
		candidate := 0
		if started < len(all) {
			feed, candidate = next, all[started]
		}
		select {
		case feed <- candidate:
			started++
			p := &t.paths[candidate]
			t.progress.Start(fmt.Sprintf("Testing %d of %d with %s: %s, %s, from %s to %s", started, len(all), size(p.bytes), p.title, p.protocol, p.fromCluster,
				p.toCluster))
		case i := <-ended:
			done++
			p := &t.paths[i]
			left[p.title]--
			if t.results[i].Error == "" {
				good[p.title]++
			}
			if left[p.title] == 0 {
				t.progress.Info(fmt.Sprintf("%s, %s: %d of %d ways work", p.title, size(p.bytes), good[p.title], total[p.title]))
			}
		}
	}
}

// try tests one path. Paths through a Service may fail until the Services are settled; all others must work at once.
func (t *trial) try(ctx context.Context, p *path) Result {
	if p.impossible != "" {
		return p.judge(matrix.Answer{})
	}
	if small := t.smaller(p); small != nil && small.Error != "" && small.Source == "" {
		return p.judge(matrix.Answer{Error: "not tested, because not even " + small.Size() + " arrived"})
	}
	asker := t.local
	if p.remote {
		asker = t.remote
	}
	for {
		answer, err := asker.Ask(ctx, Question{Namespace: p.namespace, Pod: p.pod, Key: t.key, Protocol: p.protocol, Target: p.target, Bytes: p.bytes})
		if err != nil {
			answer = matrix.Answer{Error: fmt.Sprintf("the API server could not call the pod %s/%s: %v", p.namespace, p.pod, err)}
		}
		result := p.judge(answer)
		if result.Error == "" || !p.service || time.Now().After(t.settled) || ctx.Err() != nil {
			return result
		}
		select {
		case <-ctx.Done():
			return result
		case <-time.After(settlePause):
		}
	}
}

// smaller returns the result of the small path with the same ends, which the stage before tested; nil if there is none.
func (t *trial) smaller(p *path) *Result {
	for i := range t.paths {
		one := &t.paths[i]
		if p.large && !one.large && one.remote == p.remote && one.pod == p.pod && one.protocol == p.protocol && one.target == p.target && one.title == p.title {
			return &t.results[i]
		}
	}
	return nil
}
