// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
)

const (
	// moveTime guards a move against hanging.
	moveTime = 4 * time.Minute
	// cut is how long the link between the clusters is down.
	cut = 3 * time.Second
	// movers is how many claims move at the same time, so that one strike hits all of them.
	movers = 4
	// mostTries is how often the same command is given again at the end.
	mostTries = 3
	// directions are to the provider and back.
	directions = 2
	// mostRounds bounds the rounds with one victim.
	mostRounds = 20
)

type movePhase struct {
	name  string
	takes time.Duration
}

// phases are those of a move, in their order, and how long each takes at least with little data.
var phases = []movePhase{
	{"Preparing", 3 * time.Second},
	{"Copying", 3 * time.Second},
	{"Stopping", 300 * time.Millisecond},
	{"Finishing", 2 * time.Second},
	{"Switching", time.Second},
	{"Removing", time.Second},
}

// victim is what is killed, or cut, during moves.
type victim struct {
	strike func(*testing.T, *crash)
	// heal brings back what does not come back without help.
	heal func(*testing.T, *crash)
}

// killed is a component of Liqo, whose pod is replaced at once.
func killed(in **env.Cluster, component string) victim {
	return victim{
		strike: func(t *testing.T, _ *crash) {
			env.Eventually(t, env.Hang, component+" runs", func() (string, bool) { return "", (*in).TryKill(t, component) })
		},
		heal: func(t *testing.T, _ *crash) { (*in).Renew(t, component) },
	}
}

// server is an API server, which starts again without help, later each time. While it is down, nothing can be struck.
func server(of **env.Cluster) victim {
	return victim{strike: func(t *testing.T, _ *crash) {
		env.Eventually(t, env.Hang, "the API server of "+(*of).Name+" runs", func() (string, bool) {
			result := clusters.Playground("component", "kill", (*of).Name, "kube-apiserver")
			return result.String(), result.Code == 0
		})
	}}
}

var victims = map[string]victim{
	"controller manager here":  killed(&rome, "controller-manager"),
	"controller manager there": killed(&milan, "controller-manager"),
	"virtual kubelet":          killed(&rome, "virtual-kubelet"),
	"pods of the move": {strike: func(t *testing.T, c *crash) {
		err := rome.API.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(c.name), client.HasLabels{"storage.liqo.io/move"}, client.GracePeriodSeconds(0))
		if err != nil {
			t.Error(err)
		}
	}},
	"API server here":  server(&rome),
	"API server there": server(&milan),
	"link for 3 s": {
		strike: func(t *testing.T, _ *crash) { clusters.Do(t, "fault", "partition", rome.Name, milan.Name) },
		heal: func(t *testing.T, _ *crash) {
			<-time.After(cut) // the fault
			clusters.Do(t, "fault", "heal", rome.Name, milan.Name)
		},
	},
	"liqoctl": {
		strike: func(_ *testing.T, c *crash) { c.kill() },
		heal: func(t *testing.T, c *crash) {
			for _, name := range c.claims {
				c.again(t, name)
			}
		},
	},
}

// crash is claims that move at the same time while something is killed.
type crash struct {
	namespace
	claims []string
	// at is where the data is, other where it moves.
	at, other string
	// takes is how long each phase takes, as learned from strikes that came too late.
	takes map[string]time.Duration

	mu       sync.Mutex
	phase    map[string]string // of each claim, as the last event shows it
	commands map[string]*command
}

// command is `liqoctl move volume`, which the test may kill.
type command struct {
	kill   context.CancelFunc
	ended  chan struct{}
	err    error
	output bytes.Buffer
}

// TestMoveSurvives kills each part of the system in each phase of moves: at the beginning of the phase, and at random moments. A strike counts for
// each move that was in the same phase before and after it. The same command ends each move, with its data whole and in one place.
func TestMoveSurvives(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it takes half an hour; use -long")
	}
	installedAndPeered(t)
	c := &crash{namespace: offload(t), at: rome.Nodes[len(rome.Nodes)-1].Name, other: virtualNode, takes: map[string]time.Duration{}}
	for _, phase := range phases {
		c.takes[phase.name] = phase.takes
	}
	for i := range movers {
		name := fmt.Sprintf("data-%d", i)
		c.claims = append(c.claims, name)
		c.apply(t, strings.ReplaceAll(claim, "NAME", name))
		c.apply(t, strings.NewReplacer("NAME", name, "AFFINITY", "nodeSelector: {kubernetes.io/hostname: "+c.at+"}").Replace(mounting))
	}
	c.running(t, c.claims...)
	before := map[string]string{}
	for _, name := range c.claims {
		c.kubectl(t, "exec", name, "--", "sh", "-c", files)
		before[name] = c.kubectl(t, "exec", name, "--", "sh", "-c", content)
	}
	c.kubectl(t, append([]string{"delete", "pod", timeout}, c.claims...)...)
	go c.follow(t.Context())
	for _, name := range slices.Sorted(maps.Keys(victims)) {
		if !t.Run(name, func(t *testing.T) { c.survives(t, name, before) }) {
			return
		}
	}
}

// survives moves all claims to the provider and back: once in each direction with the victim killed at the beginning of each phase, and then until it
// was killed at enough random moments of each phase.
func (c *crash) survives(t *testing.T, name string, before map[string]string) {
	beginnings, hits, took := map[string]int{}, map[string]int{}, []time.Duration{}
	enough := func() bool {
		return !slices.ContainsFunc(phases, func(one movePhase) bool { return hits[one.name] < *moments })
	}
	for round := 0; !enough(); round++ {
		if round == mostRounds {
			t.Errorf("after %d rounds: %v", round, hits)
			break
		}
		start := time.Now()
		c.all(t)
		needed, strikes := phases, 1
		if round >= directions {
			needed = slices.DeleteFunc(slices.Clone(phases), func(one movePhase) bool { return hits[one.name] >= *moments })
		}
		if len(needed) == 1 { // otherwise, moves that wait for each other would be beyond the next phase
			strikes = movers
		}
		for _, phase := range needed {
			for _, i := range rand.Perm(movers)[:strikes] {
				moment, count := time.Duration(0), beginnings
				if round >= directions {
					moment, count = rand.N(c.takes[phase.name]), hits
				}
				if !c.reach(t, c.claims[i], phase.name) {
					continue
				}
				<-time.After(moment) // the moment of the fault
				hit := c.struck(t, victims[name])
				for _, in := range hit {
					count[in]++
				}
				t.Logf("round %d, %v after phase %s began: struck in %v", round, moment.Round(time.Millisecond), phase.name, hit)
				if !slices.Contains(hit, phase.name) {
					c.takes[phase.name] = max(c.takes[phase.name]*2/3, 50*time.Millisecond)
				}
			}
		}
		took = append(took, c.end(t, start)...)
		c.at, c.other = c.other, c.at
		c.whole(t, before)
	}
	slices.Sort(took)
	text := ""
	for _, phase := range phases {
		text += fmt.Sprintf(" %s %d+%d,", phase.name, beginnings[phase.name], hits[phase.name])
	}
	text = fmt.Sprintf("%d, all whole; half within %.0f s, all within %.0f s; strikes at the beginning + at random moments:%s",
		len(took), took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), strings.TrimSuffix(text, ","))
	t.Log(text) // a run may be ended before the others
	clusters.Measure("moves with "+name+" killed", "%s", text)
}

// follow keeps the phase of each move up to date.
func (c *crash) follow(ctx context.Context) {
	for ctx.Err() == nil {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "storage.liqo.io", Version: "v1alpha1", Kind: "VolumeMoveList"})
		events, err := rome.API.Watch(ctx, list, client.InNamespace(c.name))
		if err != nil {
			<-time.After(20 * time.Millisecond) // the API server was killed
			continue
		}
		for event := range events.ResultChan() {
			if move, is := event.Object.(*unstructured.Unstructured); is && move.GetKind() == "VolumeMove" {
				c.mu.Lock()
				c.phase[move.GetName()], _ = fields.At(move.Object, "status.phase").(string)
				c.mu.Unlock()
			}
		}
	}
}

// all starts to move all claims to the other place.
func (c *crash) all(t *testing.T) {
	c.mu.Lock()
	c.phase, c.commands = map[string]string{}, map[string]*command{}
	c.mu.Unlock()
	for _, name := range c.claims {
		c.start(t, name)
	}
}

func (c *crash) start(t *testing.T, name string) {
	ctx, kill := context.WithCancel(t.Context())
	one := &command{kill: kill, ended: make(chan struct{})}
	run := rome.LiqoctlCommand(ctx, "move", "volume", name, "-n", c.name, "--target-node", c.other, "--timeout", moveTime.String())
	run.Stdout, run.Stderr = &one.output, &one.output
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { one.err = run.Wait(); close(one.ended) }()
	c.commands[name] = one
}

// again starts a command that has ended with an error.
func (c *crash) again(t *testing.T, name string) {
	t.Helper()
	select {
	case <-c.commands[name].ended:
		if one := c.commands[name]; one.err != nil {
			t.Logf("the command of claim %s ended in phase %q: %v: %s", name, c.in(name), one.err, last(one.output.String()))
			c.start(t, name)
		}
	default:
	}
}

// last returns the last line of a text.
func last(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexAny(text, "\r\n")+1:]
}

// kill kills all commands.
func (c *crash) kill() {
	for _, one := range c.commands {
		one.kill()
		<-one.ended
	}
}

// in returns the phase of the move of a claim.
func (c *crash) in(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase[name]
}

// reach waits until the move of a claim has reached a phase; false if it is beyond it.
func (c *crash) reach(t *testing.T, claim, phase string) bool {
	t.Helper()
	order := func(name string) int {
		return slices.IndexFunc(phases, func(one movePhase) bool { return one.name == name })
	}
	late := time.After(moveTime)
	for tick := time.Tick(2 * time.Millisecond); ; <-tick {
		now := c.in(claim)
		select {
		case <-c.commands[claim].ended:
			if c.commands[claim].err == nil {
				return false
			}
			c.again(t, claim)
		case <-late:
			t.Fatalf("claim %s does not reach phase %s; it is in %q", claim, phase, now)
		default:
		}
		switch {
		case now == phase:
			return true
		case now == "Completed" || now == "Failed" || order(now) > order(phase):
			return false
		}
	}
}

// struck strikes, and returns the phases of the moves that it has hit for certain.
func (c *crash) struck(t *testing.T, v victim) (hit []string) {
	t.Helper()
	c.mu.Lock()
	before := maps.Clone(c.phase)
	c.mu.Unlock()
	v.strike(t, c)
	for _, name := range c.claims {
		if now := c.in(name); now == before[name] && now != "Completed" && now != "" {
			hit = append(hit, now)
		}
	}
	if v.heal != nil {
		v.heal(t, c)
	}
	return hit
}

// end ends all moves, with the same command where that is necessary, and returns how long each took.
func (c *crash) end(t *testing.T, start time.Time) (took []time.Duration) {
	t.Helper()
	for _, name := range c.claims {
		for tries := 1; ; tries++ {
			one := c.commands[name]
			<-one.ended
			if one.err == nil || strings.Contains(one.output.String(), "there already") {
				break
			}
			if tries > mostTries {
				t.Fatalf("claim %s to %s: %v\n%s", name, c.other, one.err, &one.output)
			}
			c.again(t, name)
		}
		took = append(took, time.Since(start))
	}
	return took
}

// whole checks that every volume is where it should be, with its content, and nowhere else, and that nothing of the moves is left.
func (c *crash) whole(t *testing.T, before map[string]string) {
	t.Helper()
	c.nothingLeft(t)
	for _, name := range c.claims {
		pod := strings.NewReplacer("NAME", name, "AFFINITY", "").Replace(mounting)
		env.Eventually(t, env.Hang, "a pod is admitted", func() (string, bool) { // none is while no controller manager runs
			got := rome.TryKubectl(pod, "-n", c.name, "apply", "-f", "-")
			return got.String(), got.Code == 0
		})
	}
	c.running(t, c.claims...)
	for _, name := range c.claims {
		if after := c.kubectl(t, "exec", name, "--", "sh", "-c", content); after != before[name] {
			t.Fatalf("the volume of claim %s has\n%s\nbefore:\n%s", name, after, before[name])
		}
		if now := c.kubectl(t, "get", "pod", name, "-o", "jsonpath={.spec.nodeName}"); now != c.at {
			t.Fatalf("the data of claim %s is at %s, want %s", name, now, c.at)
		}
	}
	c.kubectl(t, append([]string{"delete", "pod", timeout}, c.claims...)...)
	// One copy of each, here or there.
	copies := map[string]int{virtualNode: 0, rome.Nodes[len(rome.Nodes)-1].Name: 0}
	copies[c.at] = movers
	env.Eventually(t, env.Hang, "there is one copy of each volume", func() (string, bool) {
		here := strings.Fields(rome.Kubectl(t, "get", claimKindName, "-n", storageNamespace, "-l", "storage.liqo.io/virtual-pvc-namespace="+c.name, "-o", "name"))
		there := strings.Fields(c.remoteKubectl(t, "get", claimKindName, "-o", "name"))
		return fmt.Sprint(here, there), len(here) == movers-copies[virtualNode] && len(there) == copies[virtualNode]
	})
}
