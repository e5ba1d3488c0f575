// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// follow calls see for each event of a kind when it arrives at this process, whose clock all latencies use. If a busy API server closes the
// watch, it resumes from the last version.
func follow(
	ctx context.Context, t testing.TB, c *env.Cluster, list client.ObjectList, see func(watch.EventType, client.Object, time.Time), options ...client.ListOption,
) {
	t.Helper()
	w, err := c.API.Watch(ctx, list, options...)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		var version string
		for ctx.Err() == nil {
			for event := range w.ResultChan() {
				if object, ok := event.Object.(client.Object); ok {
					version = object.GetResourceVersion()
					see(event.Type, object, time.Now())
				} else if ctx.Err() == nil {
					t.Errorf("watch of %T in %s: %v", list, c.Name, event.Object)
					w.Stop()
					return
				}
			}
			w.Stop()
			if ctx.Err() != nil {
				return
			}
			if version == "" {
				t.Errorf("watch of %T in %s ended before the first event", list, c.Name)
				return
			}
			resume := append(slices.Clone(options), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
			if w, err = c.API.Watch(ctx, list, resume...); err != nil && ctx.Err() == nil {
				t.Errorf("watch of %T in %s ended, and cannot be resumed: %v", list, c.Name, err)
				return
			}
		}
	}()
}

// notifier wakes goroutines that wait for a condition.
type notifier struct {
	sync.Mutex
	changed chan struct{}
}

func (n *notifier) notify() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// wait returns true as soon as good, which it calls with the lock held, returns true, and false after the time.
func (n *notifier) wait(within time.Duration, good func() bool) bool {
	over := time.After(within)
	for {
		n.Lock()
		if good() {
			n.Unlock()
			return true
		}
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed := n.changed
		n.Unlock()
		select {
		case <-changed:
		case <-over:
			return false
		}
	}
}

// track is when each pod of a burst was first seen in each state, by name.
type track struct {
	notifier
	seen, bound, ready, gone map[string]time.Time
}

func trackOf(ctx context.Context, t testing.TB, c *env.Cluster, namespace, burst string) *track {
	t.Helper()
	k := &track{seen: map[string]time.Time{}, bound: map[string]time.Time{}, ready: map[string]time.Time{}, gone: map[string]time.Time{}}
	first := func(state map[string]time.Time, name string, at time.Time) {
		if _, known := state[name]; !known {
			state[name] = at
		}
	}
	follow(ctx, t, c, &corev1.PodList{}, func(kind watch.EventType, object client.Object, at time.Time) {
		pod := object.(*corev1.Pod)
		k.Lock()
		defer k.Unlock()
		defer k.notify()
		if kind == watch.Deleted {
			first(k.gone, pod.Name, at)
			return
		}
		first(k.seen, pod.Name, at)
		if pod.Spec.NodeName != "" {
			first(k.bound, pod.Name, at)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				first(k.ready, pod.Name, at)
			}
		}
	}, client.InNamespace(namespace), client.MatchingLabels{"bench": burst})
	return k
}

// spread is the distribution of a latency, in seconds.
type spread struct {
	N             int
	P50, P99, Max float64
}

func (s spread) String() string { return fmt.Sprintf("%.3f / %.3f", s.P50, s.P99) }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[min(len(values)-1, int(share*float64(len(values))))] }
	return spread{N: len(values), P50: at(0.5), P99: at(0.99), Max: values[len(values)-1]}
}

// between is the distribution of the time from one state to another, of the pods that reached both.
func between(from, to map[string]time.Time) spread {
	var values []float64
	for name, at := range to {
		if start, known := from[name]; known {
			values = append(values, at.Sub(start).Seconds())
		}
	}
	return spreadOf(values)
}

func latest(state map[string]time.Time) (last time.Time) {
	for _, at := range state {
		if at.After(last) {
			last = at
		}
	}
	return last
}
