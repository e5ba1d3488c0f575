// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"math/bits"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=events,verbs=create;patch

// Reasons of our events.
const (
	reasonFailed      = "FailedReflection"
	reasonNotDeleted  = "FailedDeletion"
	reasonTokenFailed = "FailedSATokensReflection"
	reasonLost        = "ReflectionIncomplete"
)

const (
	// sayAgain is how long a failure that goes on is not told again.
	sayAgain = 10 * time.Minute
	// Events per peer: a burst, and per second. The peer may make as many as it likes. A namespace may have half of them.
	eventBurst, eventRate = 100, 10
	mostMessage           = 1000
	// oldEvent is what a process that has just started leaves alone.
	oldEvent = time.Minute
)

// announcer tells the users of local objects what became of these, beside the work and never in its way.
type announcer struct {
	client client.Client
	node   string
	log    logr.Logger
	rate   *rate.Limiter
	each   *manager.Allowance
	todo   chan func(context.Context) error

	mu   sync.Mutex
	said map[types.UID]saying
}

type saying struct {
	text string
	at   time.Time
}

func newAnnouncer(c client.Client, node string) *announcer {
	return &announcer{
		client: c, node: node, log: log.Log.WithName("reflection"), rate: rate.NewLimiter(eventRate, eventBurst),
		each: manager.NewAllowance(eventRate/2, eventBurst/2), todo: make(chan func(context.Context) error, 2*eventBurst), said: map[types.UID]saying{},
	}
}

// run sends what was said, until ctx ends. What cannot be sent is lost: it would be said again.
func (a *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case write := <-a.todo:
			if err := write(ctx); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).V(1).Info("event not written", "reason", err.Error())
			}
		}
	}
}

// failed says why an object does not come to the peer; the same not again and again.
func (a *announcer) failed(object client.Object, kind, reason string, err error) {
	text := reason + ": " + err.Error()
	a.mu.Lock()
	last, known := a.said[object.GetUID()]
	repeated := known && last.text == text && time.Since(last.at) < sayAgain
	if !repeated && a.may(object.GetNamespace()) {
		a.said[object.GetUID()] = saying{text, time.Now()}
	} else {
		repeated = true
	}
	a.mu.Unlock()
	if repeated {
		return
	}
	event := a.event(object, reason, err.Error(), project.EventSource(kind))
	a.send(func(ctx context.Context) error { return a.client.Create(ctx, event) })
}

// may say something about a namespace: one that has much to say does not silence the others.
func (a *announcer) may(namespace string) bool { return a.each.Allow(namespace) && a.rate.Allow() }

// settled forgets what was said of an object that is well.
func (a *announcer) settled(object client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.said, object.GetUID())
}

func (a *announcer) send(write func(context.Context) error) {
	select {
	case a.todo <- write:
	default: // the API server takes none at the moment
	}
}

func (a *announcer) event(object client.Object, reason, message, source string) *corev1.Event {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: object.GetNamespace(), GenerateName: object.GetName()[:min(len(object.GetName()), 200)] + "."},
		InvolvedObject: corev1.ObjectReference{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
		Reason:         reason, Message: printable(message), Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: source, Host: a.node}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: source, ReportingInstance: a.node,
	}
	if kind, err := apiutil.GVKForObject(object, a.client.Scheme()); err == nil {
		event.InvolvedObject.APIVersion, event.InvolvedObject.Kind = kind.ToAPIVersionAndKind()
	}
	return event
}

// printable bounds what the other API server said.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	if len(text) <= mostMessage {
		return text
	}
	return strings.ToValidUTF8(text[:mostMessage-3], "") + "..."
}

// refused are errors that come again for as long as the object is as it is.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err)
}

// visible are errors that the user of the object can do something about.
func visible(err error) bool {
	return refused(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// mustReplace are refusals of a change that a new object would not meet.
func mustReplace(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldValueDuplicate || strings.Contains(cause.Message, "immutable") || strings.Contains(cause.Message, "may not change once set") {
			return true
		}
	}
	return false
}

// remoteEvents shows on local pods what the peer warns of theirs.
type remoteEvents struct {
	engine *Engine
	source *fanin.Source
}

func newRemoteEvents(e *Engine) *remoteEvents {
	r := &remoteEvents{engine: e}
	r.source = fanin.New(fanin.Options{
		Object: &corev1.Event{}, List: func() client.ObjectList { return &corev1.EventList{} },
		Client: e.remote.wait,
		// What goes well needs no words, and a pod has five of these.
		Select:  []client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("type", corev1.EventTypeWarning)}},
		Trim:    trimEvent,
		Changed: r.changed,
	})
	return r
}

func trimEvent(object client.Object) {
	object.SetManagedFields(nil)
	object.SetLabels(nil)
	object.SetAnnotations(nil)
}

// changed shows an event, and shows it again when its count has doubled.
func (r *remoteEvents) changed(before, after client.Object) {
	event, _ := after.(*corev1.Event)
	if event == nil {
		return
	}
	if last, _ := before.(*corev1.Event); last != nil && often(last) == often(event) {
		return
	}
	pair := r.engine.pairs.remote(event.Namespace)
	if pair == nil {
		return
	}
	subject, shown := project.EventSubject(pair.link, event)
	if !shown {
		return
	}
	local := r.local(pair, subject)
	if local == nil || !r.source.Synced(event.Namespace) && stale(local, event) || !r.engine.said.may(local.GetNamespace()) {
		return
	}
	if wish := project.Event(pair.link, local, event); wish != nil {
		r.engine.said.send(func(ctx context.Context) error {
			return r.engine.local.Apply(ctx, wish, client.FieldOwner(labels.OwnerReflection), client.ForceOwnership)
		})
	}
}

// local is the object here that an event in the peer is about; nil if that was about another of the name.
func (r *remoteEvents) local(pair *pair, subject project.Subject) client.Object {
	key := types.NamespacedName{Namespace: pair.link.Local, Name: subject.Name}
	if subject.Kind == podKind {
		if local, _ := r.engine.pods.local.Get(key).(*corev1.Pod); local != nil && r.engine.pods.concerns(pair, local, subject) {
			return local
		}
		return nil
	}
	if reflector := r.engine.reflector(subject.Kind); reflector != nil {
		if remote := reflector.remote.Get(reflector.remoteKey(pair, subject.Name)); remote != nil && remote.GetUID() == subject.UID && pair.link.Reflected(remote) {
			return reflector.local.Get(key)
		}
	}
	return nil
}

// stale are events that somebody has seen before this process was there, or that do not matter any more.
func stale(local client.Object, event *corev1.Event) bool {
	pod, is := local.(*corev1.Pod)
	return !is || ready(&pod.Status) || finished(pod) || time.Since(lastSeen(event)) > oldEvent
}

func lastSeen(event *corev1.Event) time.Time {
	last := event.CreationTimestamp.Time
	for _, at := range []time.Time{event.LastTimestamp.Time, event.EventTime.Time} {
		if at.After(last) {
			last = at
		}
	}
	if event.Series != nil && event.Series.LastObservedTime.After(last) {
		last = event.Series.LastObservedTime.Time
	}
	return last
}

// often is how often an event has come, in powers of two.
func often(event *corev1.Event) int {
	count := event.Count
	if event.Series != nil {
		count = max(count, event.Series.Count)
	}
	return bits.Len32(uint32(max(count, 1)))
}
