// SPDX-License-Identifier: Apache-2.0

// Package ready waits until a cluster is complete: nodes Ready, addons working.
//
// It exists as a program so that the playground needs no Kubernetes client: the playground
// reads lines of JSON. Once the API answers, the program watches: it polls nothing and does no
// discovery.
//
// It must not know what the nodes and addons are for, and changes nothing in the cluster.
// state_test.go proves the decisions, the integration test of package cloud the program.
package ready

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"liqo.io/liqo/playground/components/kube/internal/session"
)

const (
	metricsService = "v1beta1.metrics.k8s.io"
	// gather is how long changes are collected before a line is printed: many nodes become
	// Ready at about the same time.
	gather = 20 * time.Millisecond
)

// errTimeout is the cause of a wait that reached its timeout.
var errTimeout = errors.New("the cluster is not complete")

// criteria define when a cluster is complete.
type criteria struct {
	nodes  int
	addons bool
}

// NewCommand returns the program "ready".
func NewCommand() *cobra.Command {
	var kubeconfig string
	var want criteria
	var timeout time.Duration
	var once bool
	command := &cobra.Command{
		Use:     "ready --kubeconfig FILE --nodes N [--addons]",
		Short:   "Wait until a cluster is complete, printing each change as a line of JSON",
		Example: "  ready --kubeconfig rome.kubeconfig --nodes 2 --addons --timeout 60s",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options := session.Options{Kubeconfig: kubeconfig, UserAgent: "playground-ready", QPS: 50, Burst: 100, Probe: 50 * time.Millisecond}
			// The state is the whole report; messages of client-go would only disturb.
			klog.LogToStderr(false)
			klog.SetOutput(io.Discard)
			ctx := command.Context()
			if once {
				return printOnce(ctx, options, want, command.OutOrStdout())
			}
			return wait(ctx, options, want, timeout, command.OutOrStdout())
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; may appear later")
	command.Flags().IntVar(&want.nodes, "nodes", 0, "number of nodes, of any kind, that must be Ready")
	command.Flags().BoolVar(&want.addons, "addons", false, "wait also for CoreDNS, metrics-server and the metrics API")
	command.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this long")
	command.Flags().BoolVar(&once, "once", false, "print the present state and end")
	_ = command.MarkFlagRequired("kubeconfig") // fails only for a flag that does not exist
	return command
}

// printer writes a state if it differs from the last one.
type printer struct {
	out  io.Writer
	last *State
}

func (p *printer) print(state State) error {
	if p.last != nil && reflect.DeepEqual(*p.last, state) {
		return nil
	}
	p.last = &state
	return json.NewEncoder(p.out).Encode(state)
}

// printOnce prints the present state. No answer within three seconds is an error.
func printOnce(ctx context.Context, options session.Options, want criteria, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	state, err := list(ctx, options, want)
	if err != nil {
		state = State{Nodes: Count{Want: want.nodes}}
	}
	return errors.Join(err, (&printer{out: out}).print(state))
}

func list(ctx context.Context, options session.Options, want criteria) (State, error) {
	config, err := session.Config(options)
	if err != nil {
		return State{}, err
	}
	if err := session.Probe(ctx, config); err != nil {
		return State{}, err
	}
	core, aggregated, err := clients(config)
	if err != nil {
		return State{}, err
	}
	var s snapshot
	nodes, err := core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return State{}, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		s.nodes = append(s.nodes, &nodes.Items[i])
	}
	if want.addons {
		deployments, err := core.AppsV1().Deployments(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return State{}, fmt.Errorf("list deployments: %w", err)
		}
		for i := range deployments.Items {
			s.deployments = append(s.deployments, &deployments.Items[i])
		}
		services, err := aggregated.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{FieldSelector: onlyMetrics()})
		if err != nil {
			return State{}, fmt.Errorf("list API services: %w", err)
		}
		for i := range services.Items {
			s.services = append(s.services, &services.Items[i])
		}
	}
	return evaluate(want, s), nil
}

func onlyMetrics() string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, metricsService).String()
}

func clients(config *rest.Config) (kubernetes.Interface, aggregator.Interface, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	aggregated, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return core, aggregated, nil
}

// wait prints each change until the cluster is complete. The error of a timeout names what is missing.
func wait(ctx context.Context, options session.Options, want criteria, timeout time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	p, start := &printer{out: out}, time.Now()
	var why error
	options.Away = func(err error) {
		why = err
		_ = p.print(State{Nodes: Count{Want: want.nodes}}) // the next change reports a reader that is gone
	}
	err := session.Run(ctx, options, func(ctx context.Context, config *rest.Config) error {
		return watch(ctx, config, want, p)
	})
	if err == nil || p.last == nil {
		return err
	}
	text := p.last.sentence()
	if !p.last.API && why != nil {
		text += " (" + why.Error() + ")"
	}
	return fmt.Errorf("%w after %s: %s", err, time.Since(start).Round(time.Millisecond), text)
}

// watch prints each change of one session and returns nil when the cluster is complete.
func watch(ctx context.Context, config *rest.Config, want criteria, p *printer) error {
	core, aggregated, err := clients(config)
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	ring := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var watched []cache.SharedIndexInformer
	factory := informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithNamespace(metav1.NamespaceSystem), informers.WithTransform(trim))
	nodes := factory.Core().V1().Nodes().Informer()
	watched = append(watched, nodes)
	var deployments, services cache.SharedIndexInformer
	if want.addons {
		deployments = factory.Apps().V1().Deployments().Informer()
		source := cache.NewFilteredListWatchFromClient(aggregated.ApiregistrationV1().RESTClient(), "apiservices", "",
			func(o *metav1.ListOptions) { o.FieldSelector = onlyMetrics() })
		services = cache.NewSharedIndexInformer(source, &apiregistrationv1.APIService{}, 0, nil)
		watched = append(watched, deployments, services)
	}
	var synced []cache.InformerSynced
	for _, informer := range watched {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { ring() }, UpdateFunc: func(any, any) { ring() }, DeleteFunc: func(any) { ring() },
		})
		if err != nil {
			return err
		}
		synced = append(synced, handler.HasSynced)
		go informer.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return context.Cause(ctx)
	}
	for {
		var s snapshot
		s.nodes = contents[corev1.Node](nodes)
		if want.addons {
			s.deployments, s.services = contents[appsv1.Deployment](deployments), contents[apiregistrationv1.APIService](services)
		}
		state := evaluate(want, s)
		if err := p.print(state); err != nil || state.Done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(gather):
		}
	}
}

func contents[T any](informer cache.SharedIndexInformer) []*T {
	var all []*T
	for _, object := range informer.GetStore().List() {
		all = append(all, object.(*T))
	}
	return all
}

// trim drops the bulk of the unused fields.
func trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if node, isNode := object.(*corev1.Node); isNode {
		node.Status.Images = nil
	}
	return object, nil
}
