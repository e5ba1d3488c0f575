// SPDX-License-Identifier: Apache-2.0

// Package events writes events about local objects for their users, and copies warnings about remote objects to the local ones.
//
// It knows no workers and no caches but that of remote events: which object an event is about, its caller decides. Both writers are bounded, because a peer may
// create as many events as it likes.
package events

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/kube/ratelimit"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=events,verbs=create;patch

// Reasons of our events.
const (
	ReasonReflected   = reasons.SuccessfulReflection
	ReasonFailed      = reasons.FailedReflection
	ReasonNotDeleted  = reasons.FailedDeletion
	ReasonTokenFailed = reasons.FailedSATokensReflection
	ReasonIncomplete  = reasons.ReflectionIncomplete
	ReasonFailing     = reasons.PodsFailInALoop
	ReasonWaiting     = reasons.PredecessorEnding
	ReasonStuck       = reasons.RemotePodStuck
)

const (
	// repeatInterval is how often an unchanged failure is reported again.
	repeatInterval = 10 * time.Minute
	// Events that we write per peer: at once, and per second. They are bounded because the peer may create as many as it likes. One namespace may use half.
	eventBurst, eventRate = 100, 10
	// successBurst and successRate are for events about successes, which have a bound of their own: they must not silence those about failures.
	successBurst, successRate = 20, 1
	maxMessage                = 1000
	// waitsLong is after which time a failure that is not the object's is reported. maxWaiting bounds for how many objects that is known.
	waitsLong  = 30 * time.Second
	maxWaiting = 10_000
)

// Recorder writes events about local objects for their users. It never blocks the workers.
type Recorder struct {
	client client.Client
	node   string
	peer   string
	rate   *rate.Limiter
	// successes bounds the events about successes.
	successes *rate.Limiter
	// perNamespace keeps a namespace with many events from silencing the others.
	perNamespace *ratelimit.Limiter[string]
	writes       chan func(context.Context) error

	mu       sync.Mutex
	reported map[types.UID]report
	// waiting is since when the peer cannot take an object, although it does not refuse it.
	waiting map[types.UID]time.Time
}

// report is the last failure of an object that was reported.
type report struct {
	text string
	at   time.Time
}

// NewRecorder returns a recorder that writes with this client about pods and other objects of this node, whose peer has a name.
func NewRecorder(c client.Client, node, peer string) *Recorder {
	return &Recorder{
		client: c, node: node, peer: fmt.Sprintf("cluster %q", peer), waiting: map[types.UID]time.Time{}, rate: rate.NewLimiter(eventRate, eventBurst),
		successes: rate.NewLimiter(successRate, successBurst), perNamespace: ratelimit.New[string](eventRate/2, eventBurst/2, 10_000),
		writes: make(chan func(context.Context) error, 2*eventBurst), reported: map[types.UID]report{},
	}
}

// Run writes the events until ctx ends. An event that cannot be written is lost: a failure that lasts is reported again.
func (a *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case write := <-a.writes:
			if err := write(ctx); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).V(1).Info("event not written", "reason", err.Error())
			}
		}
	}
}

// Failed reports why an object is not in the peer as it should be. The same failure is reported once per repeatInterval.
func (a *Recorder) Failed(object client.Object, kind, reason string, err error) {
	a.failed(object, kind, reason, err, repeatInterval)
}

// Changed is Failed for what lasts until an administrator changes it: it is reported once, and again if it changes.
func (a *Recorder) Changed(object client.Object, kind, reason string, err error) {
	a.failed(object, kind, reason, err, math.MaxInt64)
}

// Waits reports why the peer does not take an object now, although it does not refuse it, once that has lasted.
func (a *Recorder) Waits(object client.Object, kind string, err error) {
	a.mu.Lock()
	since, ok := a.waiting[object.GetUID()]
	if !ok && len(a.waiting) < maxWaiting {
		a.waiting[object.GetUID()] = time.Now()
	}
	a.mu.Unlock()
	if ok && time.Since(since) >= waitsLong {
		a.Failed(object, kind, ReasonFailed, fmt.Errorf("%s cannot do that now, and Liqo tries again: %w", a.peer, err))
	}
}

func (a *Recorder) failed(object client.Object, kind, reason string, err error, again time.Duration) {
	message := a.spoken(err)
	text := reason + ": " + message
	a.mu.Lock()
	last, ok := a.reported[object.GetUID()]
	repeated := ok && last.text == text && time.Since(last.at) < again
	if !repeated && a.allow(object.GetNamespace()) {
		a.reported[object.GetUID()] = report{text, time.Now()}
	} else {
		repeated = true
	}
	a.mu.Unlock()
	if repeated {
		return
	}
	event := a.event(object, reason, message, Component(kind))
	a.send(func(ctx context.Context) error { return a.client.Create(ctx, event) })
}

// spoken returns the text of an error with the name of the cluster that speaks: the peer, if an API server does.
func (a *Recorder) spoken(err error) string {
	message := strings.ReplaceAll(err.Error(), "the remote cluster", a.peer)
	var status apierrors.APIStatus
	if errors.As(err, &here{}) || !errors.As(err, &status) {
		return message
	}
	if message = strings.ReplaceAll(message, "this cluster", a.peer); strings.Contains(message, a.peer) {
		return message
	}
	return a.peer + ": " + message
}

// here is an error of the API server of this cluster.
type here struct{ error }

func (h here) Unwrap() error { return h.error }

// Here marks an error as one of the API server of this cluster, and not of the peer's.
func Here(err error) error {
	if err == nil {
		return nil
	}
	return here{err}
}

// Wrote reports whether an event is one of ours about a kind of objects, and reports this.
func (a *Recorder) Wrote(event *corev1.Event, kind string, err error) bool {
	return event.Source == (corev1.EventSource{Component: Component(kind), Host: a.node}) && event.Message == printable.Line(a.spoken(err), maxMessage)
}

// Reflected reports that an object has been created in the peer.
func (a *Recorder) Reflected(object client.Object, kind, peer string) {
	if !a.successes.Allow() {
		return
	}
	event := a.event(object, ReasonReflected, fmt.Sprintf("the object is reflected to cluster %q", peer), Component(kind))
	event.Type = corev1.EventTypeNormal
	a.send(func(ctx context.Context) error { return a.client.Create(ctx, event) })
}

// allow consumes one event of the budgets of a namespace and of the peer.
func (a *Recorder) allow(namespace string) bool {
	return a.perNamespace.Allow(namespace, time.Now()) && a.rate.Allow()
}

// Resolved forgets the last failure of an object, so that the next one is reported at once.
func (a *Recorder) Resolved(object client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reported, object.GetUID())
	delete(a.waiting, object.GetUID())
}

// Waiting returns how many events are still to be written.
func (a *Recorder) Waiting() int { return len(a.writes) }

func (a *Recorder) send(write func(context.Context) error) {
	select {
	case a.writes <- write:
	default: // the API server does not accept events fast enough
	}
}

func (a *Recorder) event(object client.Object, reason, message, source string) *corev1.Event {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: object.GetNamespace(), GenerateName: object.GetName()[:min(len(object.GetName()), 200)] + "."},
		InvolvedObject: corev1.ObjectReference{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
		Reason:         reason, Message: printable.Line(message, maxMessage), Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: source, Host: a.node}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: source, ReportingInstance: a.node,
	}
	if kind, err := apiutil.GVKForObject(object, a.client.Scheme()); err == nil {
		event.InvolvedObject.APIVersion, event.InvolvedObject.Kind = kind.ToAPIVersionAndKind()
	}
	return event
}
