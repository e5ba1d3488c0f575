// SPDX-License-Identifier: Apache-2.0

// Command history records what became of offloaded pods in two clusters, and checks what was recorded against the laws that hold whatever
// fails: a pod runs once at a time, what has finished stays finished, nobody restarts or deletes what runs, both sides agree.
//
// What is recorded comes from three sources that know nothing of each other: the objects of both API servers, the processes of the machine
// that all nodes are on, and the termination messages that containers write (command stamp). A watch that broke goes on where it
// ended. Where that cannot be done the history has a gap: still provable are then the runs of pods that outlived it, since kubelets
// count and name them, and whatever had a process. Not provable is that an object did not come and go within it, and that a
// phase did not go back and forth.
//
// It knows labels and kinds of the product, none of its code. check.go and what it calls are pure. Proof: check_test.go breaks each law,
// main_test.go records from an API server that fails.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/liqo/apis/labels"
)

const usage = `history record --here KUBECONFIG --there KUBECONFIG --namespace NS --node VIRTUALNODE --to FILE
    Marks are read from the standard input, one JSON object per line, until a mark "stop". Each is answered with a line: for
    {"kind":"end","what":"..."} as soon as both clusters agree, with the seconds that took.
history check [--converge 30s] [--patience 8s] FILE
    Prints a report, and ends with exit code 1 if a law is broken.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run1(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
}

func run1(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "record":
		return record(ctx, args[1:], in, out)
	case len(args) > 0 && args[0] == "check":
		return checkFile(args[1:], out)
	}
	return fmt.Errorf("wrong call\n%s", strings.TrimSpace(usage))
}

func checkFile(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	var l limits
	flags.DurationVar(&l.converge, "converge", 30*time.Second, "after a cause has ended")
	flags.DurationVar(&l.patience, "patience", 8*time.Second, "how long news may be under way")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := os.Open(flags.Arg(0))
	if err != nil {
		return err
	}
	defer file.Close()
	facts, err := read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	if len(facts) == 0 {
		return fmt.Errorf("%s holds nothing", flags.Arg(0))
	}
	found := check(facts, l)
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(found); err != nil {
		return err
	}
	if len(found.Broken) > 0 {
		return fmt.Errorf("laws are broken in %d cases", len(found.Broken))
	}
	return nil
}

// recorder is the one writer of a history.
type recorder struct {
	mu      sync.Mutex
	to      *bufio.Writer
	err     error
	sources []*source
}

func (r *recorder) tell(f Fact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.At = now()
	text, err := json.Marshal(f)
	if err == nil {
		_, err = r.to.Write(append(text, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

func record(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	local, remote := flags.String("here", "", "kubeconfig"), flags.String("there", "", "kubeconfig")
	namespace, node, to := flags.String("namespace", "", "of the pods here"), flags.String("node", "", "virtual node"), flags.String("to", "", "file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := os.Create(*to)
	if err != nil {
		return err
	}
	r := &recorder{to: bufio.NewWriterSize(file, 1<<20)}
	defer func() { err = errors.Join(err, r.err, r.to.Flush(), file.Close()) }()
	if err := r.open(*local, *remote, *namespace, *node); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	for _, s := range r.sources {
		working.Go(func() { s.follow(ctx) })
	}
	working.Go(func() {
		m := &machine{proc: "/proc", every: 500 * time.Millisecond, tell: r.tell}
		if err := m.follow(ctx); err != nil {
			r.mu.Lock()
			r.err = errors.Join(r.err, fmt.Errorf("processes: %w", err))
			r.mu.Unlock()
		}
	})
	return r.marks(ctx, in, out)
}

func (r *recorder) open(local, remote, namespace, node string) error {
	mine, err := connect(local)
	if err != nil {
		return err
	}
	theirs, err := connect(remote)
	if err != nil {
		return err
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	shadows := schema.GroupVersionResource{Group: "virtualkubelet.liqo.io", Version: "v1alpha1", Resource: "shadowpods"}
	r.sources = []*source{
		{cluster: here, resource: pods, namespace: namespace, options: metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, client: mine, tell: r.tell},
		{cluster: there, resource: pods, options: metav1.ListOptions{LabelSelector: labels.Origin}, client: theirs, tell: r.tell},
		{cluster: there, resource: shadows, options: metav1.ListOptions{LabelSelector: labels.Origin}, client: theirs, tell: r.tell},
	}
	return nil
}

// answer is what is printed for a mark.
type answer struct {
	Mark  Mark    `json:"mark"`
	Took  float64 `json:"took"` // seconds until both clusters agreed
	Seen  string  `json:"seen,omitempty"`
	Agree bool    `json:"agree"`
}

// agreeWithin is when it is given up to wait for the clusters to agree; the checker says by which limit they should have.
const agreeWithin = 3 * time.Minute

func (r *recorder) marks(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m Mark
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("mark %q: %w", lines.Text(), err)
		}
		r.tell(Fact{Mark: &m})
		said := answer{Mark: m, Agree: true}
		if m.Kind == markEnd {
			began := time.Now()
			said.Seen, said.Agree = r.agree(ctx)
			said.Took = time.Since(began).Seconds()
		}
		if err := json.NewEncoder(out).Encode(said); err != nil {
			return err
		}
		if m.Kind == markStop {
			return nil
		}
	}
	return errors.Join(lines.Err(), errors.New("the input ended without a mark stop"))
}

// agree waits until fresh lists of both clusters show no difference.
func (r *recorder) agree(ctx context.Context) (seen string, good bool) {
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	for {
		if seen, good = r.compare(ctx); good || ctx.Err() != nil {
			return seen, good
		}
		pause(ctx)
	}
}

func (r *recorder) compare(ctx context.Context) (string, bool) {
	now := newSides()
	for _, s := range r.sources {
		facts, err := s.now(ctx)
		if err != nil {
			return err.Error(), false
		}
		for _, f := range facts {
			now.take(f)
		}
	}
	all := now.differences()
	if len(all) > 0 {
		return fmt.Sprintf("%d of %d pods differ, such as %s", len(all), len(now.local), all[0]), false
	}
	return fmt.Sprintf("%d pods here, %d there", len(now.local), len(now.remote)), len(now.local) > 0
}
