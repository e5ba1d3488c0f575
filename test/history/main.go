// SPDX-License-Identifier: Apache-2.0

// Command history records the life of offloaded pods in two clusters, and checks the record against the laws that hold whatever fails:
// a pod runs once at a time, a finished pod stays finished, a running pod is neither restarted nor deleted, both clusters agree.
//
// The record has three independent sources: the objects of both API servers, the processes of the machine on which all nodes run, and the
// termination messages that containers write (command stamp). A watch that broke resumes where it ended. If that is not possible, the
// history has a gap. Across a gap the checker still proves the runs of pods that exist after it, since kubelets count and name runs, and
// of everything that had a process. It cannot prove that no object was created and deleted within the gap, nor that no phase changed and
// changed back.
//
// It knows labels and kinds of the product, none of its code. check.go and what it calls are pure. Proof: check_test.go breaks each law,
// record_test.go records from an API server that fails.
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

const usage = `history record --consumer KUBECONFIG --provider KUBECONFIG,... --namespace NS --node VIRTUALNODE,... --to FILE
    Reads markers from the standard input, one JSON object per line, until a marker of kind "stop". Answers each with a line; the
    answer to {"kind":"end","cause":"..."} comes as soon as both clusters agree, with the seconds that took.
history check [--converge 30s] [--lag 8s] FILE
    Prints a report, and ends with exit code 1 if a law is broken.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := execute(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == "record":
		return record(ctx, args[1:], in, out)
	case len(args) > 0 && args[0] == "check":
		return checkFile(args[1:], out)
	}
	return fmt.Errorf("unknown command\n%s", strings.TrimSpace(usage))
}

func checkFile(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	var l limits
	flags.DurationVar(&l.converge, "converge", 30*time.Second, "time for the clusters to agree after a cause has ended")
	flags.DurationVar(&l.lag, "lag", 8*time.Second, "how long the clusters may differ while no cause is active")
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
		return fmt.Errorf("%s is empty", flags.Arg(0))
	}
	found := check(facts, l)
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(found); err != nil {
		return err
	}
	if len(found.Violations) > 0 {
		return fmt.Errorf("%d violations of laws", len(found.Violations))
	}
	return nil
}

// recorder is the single writer of a history.
type recorder struct {
	mu      sync.Mutex
	to      *bufio.Writer
	err     error
	sources []*source
}

func (r *recorder) record(f Fact) {
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
	local, remote := flags.String("consumer", "", "kubeconfig of the consumer"), flags.String("provider", "", "kubeconfigs of the providers")
	namespace, node, to := flags.String("namespace", "", "of the pods in the consumer; empty: all"),
		flags.String("node", "", "virtual node of each provider"), flags.String("to", "", "file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	file, err := os.Create(*to)
	if err != nil {
		return err
	}
	r := &recorder{to: bufio.NewWriterSize(file, 1<<20)}
	defer func() { err = errors.Join(err, r.err, r.to.Flush(), file.Close()) }()
	if err := r.open(*local, *namespace, strings.Split(*remote, ","), strings.Split(*node, ",")); err != nil {
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
		w := &processWatcher{proc: "/proc", every: 500 * time.Millisecond, record: r.record}
		if err := w.follow(ctx); err != nil {
			r.mu.Lock()
			r.err = errors.Join(r.err, fmt.Errorf("processes: %w", err))
			r.mu.Unlock()
		}
	})
	return r.markers(ctx, in, out)
}

// open has a source for the pods of each virtual node, and two for its provider. Several providers are one in the history: no two of them have
// objects for the same pod, unless a law is broken.
func (r *recorder) open(local, namespace string, remotes, nodes []string) error {
	if len(remotes) != len(nodes) {
		return fmt.Errorf("%d providers and %d virtual nodes; want one virtual node for each provider", len(remotes), len(nodes))
	}
	localAPI, err := connect(local)
	if err != nil {
		return err
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	shadows := schema.GroupVersionResource{Group: "virtualkubelet.liqo.io", Version: "v1alpha1", Resource: "shadowpods"}
	for i, remote := range remotes {
		remoteAPI, err := connect(remote)
		if err != nil {
			return err
		}
		r.sources = append(r.sources,
			&source{
				cluster: consumer, resource: pods, namespace: namespace, options: metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodes[i]},
				client: localAPI, record: r.record,
			},
			&source{cluster: provider, resource: pods, options: metav1.ListOptions{LabelSelector: labels.Origin}, client: remoteAPI, record: r.record},
			&source{cluster: provider, resource: shadows, options: metav1.ListOptions{LabelSelector: labels.Origin}, client: remoteAPI, record: r.record})
	}
	return nil
}

// answer is the output for a marker.
type answer struct {
	Marker Marker  `json:"marker"`
	Took   float64 `json:"took"` // seconds until both clusters agreed
	Seen   string  `json:"seen,omitempty"`
	Agree  bool    `json:"agree"`
}

// agreeWithin is how long the recorder waits for the clusters to agree; the checker applies the stricter limit.
const agreeWithin = 3 * time.Minute

func (r *recorder) markers(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m Marker
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("marker %q: %w", lines.Text(), err)
		}
		r.record(Fact{Marker: &m})
		reply := answer{Marker: m, Agree: true}
		if m.Kind == markerEnd {
			start := time.Now()
			reply.Seen, reply.Agree = r.agree(ctx)
			reply.Took = time.Since(start).Seconds()
		}
		if err := json.NewEncoder(out).Encode(reply); err != nil {
			return err
		}
		if m.Kind == markerStop {
			return nil
		}
	}
	return errors.Join(lines.Err(), errors.New("the input ended without a marker of kind stop"))
}

// agree waits until fresh lists of both clusters show no difference.
func (r *recorder) agree(ctx context.Context) (seen string, good bool) {
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	for {
		if seen, good = r.compare(ctx); good || ctx.Err() != nil {
			return seen, good
		}
		retryDelay(ctx)
	}
}

func (r *recorder) compare(ctx context.Context) (string, bool) {
	pods := newSnapshot()
	for _, s := range r.sources {
		facts, err := s.current(ctx)
		if err != nil {
			return err.Error(), false
		}
		for _, f := range facts {
			pods.apply(f)
		}
	}
	all := pods.differences()
	if len(all) > 0 {
		return fmt.Sprintf("%d of %d pods differ, such as %s", len(all), len(pods.local), all[0]), false
	}
	return fmt.Sprintf("%d pods in the consumer, %d in the provider", len(pods.local), len(pods.remote)), len(pods.local) > 0
}
