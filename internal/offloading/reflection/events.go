// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"time"
	"unicode"

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
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=events,verbs=create;patch

// Reasons of our events.
const (
	reasonReflected   = "SuccessfulReflection"
	reasonFailed      = "FailedReflection"
	reasonNotDeleted  = "FailedDeletion"
	reasonTokenFailed = "FailedSATokensReflection"
	reasonIncomplete  = "ReflectionIncomplete"
	reasonFailing     = "PodsFailInALoop"
)

const (
	// repeatInterval is how often an unchanged failure is reported again.
	repeatInterval = 10 * time.Minute
	// Events that we write per peer: at once, and per second. They are bounded because the peer may create as many as it likes. One namespace may use half.
	eventBurst, eventRate = 100, 10
	// successBurst and successRate are for events about successes, which have a bound of their own: they must not silence those about failures.
	successBurst, successRate = 20, 1
	maxMessage                = 1000
	// oldEvent is the age from which a process that has just started ignores an event.
	oldEvent = time.Minute
)

// eventRecorder writes events about local objects for their users. It never blocks the workers.
type eventRecorder struct {
	client client.Client
	node   string
	rate   *rate.Limiter
	// successes bounds the events about successes.
	successes *rate.Limiter
	// perNamespace keeps a namespace with many events from silencing the others.
	perNamespace *ratelimit.Limiter[string]
	writes       chan func(context.Context) error

	mu       sync.Mutex
	reported map[types.UID]report
}

// report is the last failure of an object that was reported.
type report struct {
	text string
	at   time.Time
}

func newEventRecorder(c client.Client, node string) *eventRecorder {
	return &eventRecorder{
		client: c, node: node, rate: rate.NewLimiter(eventRate, eventBurst), successes: rate.NewLimiter(successRate, successBurst), perNamespace: ratelimit.New[string](eventRate/2, eventBurst/2, 10_000),
		writes: make(chan func(context.Context) error, 2*eventBurst), reported: map[types.UID]report{},
	}
}

// run writes the events until ctx ends. An event that cannot be written is lost: a failure that lasts is reported again.
func (a *eventRecorder) run(ctx context.Context) {
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

// failed reports why an object is not in the peer as it should be. The same failure is reported once per repeatInterval.
func (a *eventRecorder) failed(object client.Object, kind, reason string, err error) {
	text := reason + ": " + err.Error()
	a.mu.Lock()
	last, known := a.reported[object.GetUID()]
	repeated := known && last.text == text && time.Since(last.at) < repeatInterval
	if !repeated && a.allow(object.GetNamespace()) {
		a.reported[object.GetUID()] = report{text, time.Now()}
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

// reflected reports that an object has been created in the peer.
func (a *eventRecorder) reflected(object client.Object, kind, peer string) {
	if !a.successes.Allow() {
		return
	}
	event := a.event(object, reasonReflected, fmt.Sprintf("the object is reflected to cluster %q", peer), project.EventSource(kind))
	event.Type = corev1.EventTypeNormal
	a.send(func(ctx context.Context) error { return a.client.Create(ctx, event) })
}

// allow consumes one event of the budgets of a namespace and of the peer.
func (a *eventRecorder) allow(namespace string) bool {
	return a.perNamespace.Allow(namespace, time.Now()) && a.rate.Allow()
}

// succeeded forgets the last failure of an object, so that the next one is reported at once.
func (a *eventRecorder) succeeded(object client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.reported, object.GetUID())
}

func (a *eventRecorder) send(write func(context.Context) error) {
	select {
	case a.writes <- write:
	default: // the API server does not accept events fast enough
	}
}

func (a *eventRecorder) event(object client.Object, reason, message, source string) *corev1.Event {
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

// printable bounds a message of the peer's API server and removes what is not printable.
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
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}

// refused recognises errors that repeat until the object is changed.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err)
}

// visible recognises errors that the user of the object can do something about.
func visible(err error) bool {
	return refused(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// mustReplace recognises a refusal of a change that deleting and creating the object again would avoid.
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

// remoteEvents copies warnings about remote objects to the local objects.
type remoteEvents struct {
	engine *Engine
	source *fanin.Source
}

func newRemoteEvents(e *Engine) *remoteEvents {
	r := &remoteEvents{engine: e}
	r.source = fanin.New(fanin.Options{
		Object: &corev1.Event{}, List: func() client.ObjectList { return &corev1.EventList{} },
		Client: e.remote.waitForClient,
		// Normal events are not copied: a pod has five of them, and its status shows what they report.
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

// changed writes a local event for a new remote one, and again each time the count of that has doubled.
func (r *remoteEvents) changed(before, after client.Object) {
	event, _ := after.(*corev1.Event)
	if event == nil {
		return
	}
	if last, _ := before.(*corev1.Event); last != nil && magnitude(last) == magnitude(event) {
		return
	}
	mapping := r.engine.mappings.remote(event.Namespace)
	if mapping == nil {
		return
	}
	subject, shown := project.EventSubject(mapping.NamespaceMapping, event)
	if !shown {
		return
	}
	local := r.local(mapping, subject)
	if local == nil || !r.source.Synced(event.Namespace) && outdated(local, event) || !r.engine.recorder.allow(local.GetNamespace()) {
		return
	}
	if intent := project.Event(mapping.NamespaceMapping, local, event); intent != nil {
		r.engine.recorder.send(func(ctx context.Context) error {
			return r.engine.local.Apply(ctx, intent, client.FieldOwner(labels.OwnerReflection), client.ForceOwnership)
		})
	}
}

// arrived copies the events of a remote object that was not known when they arrived: watches of different kinds keep no order among each other.
func (r *remoteEvents) arrived(before, after client.Object) {
	if after == nil || before != nil && before.GetUID() == after.GetUID() {
		return
	}
	for _, one := range r.source.All(after.GetNamespace()) {
		if event, _ := one.(*corev1.Event); event != nil && event.InvolvedObject.UID == after.GetUID() && time.Since(lastSeen(event)) <= oldEvent {
			r.changed(nil, event)
		}
	}
}

// local returns the local object that a remote event is about; nil if the event is about an earlier remote object of that name.
func (r *remoteEvents) local(mapping *mapping, subject project.Subject) client.Object {
	key := types.NamespacedName{Namespace: mapping.Local, Name: subject.Name}
	if subject.Kind == podKind {
		if local, _ := r.engine.pods.local.Get(key).(*corev1.Pod); local != nil && r.engine.pods.isAbout(mapping, local, subject) {
			return local
		}
		return nil
	}
	if reflector := r.engine.reflector(subject.Kind); reflector != nil {
		if remote := reflector.remote.Get(reflector.remoteKey(mapping, subject.Name)); remote != nil && remote.GetUID() == subject.UID && mapping.Reflected(remote) {
			return reflector.local.Get(key)
		}
	}
	return nil
}

// outdated recognises events from before this process started, which an earlier process has copied or which no longer matter.
func outdated(local client.Object, event *corev1.Event) bool {
	pod, is := local.(*corev1.Pod)
	return !is || podplan.Ready(&pod.Status) || project.Finished(pod.Status.Phase) || time.Since(lastSeen(event)) > oldEvent
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

// magnitude is the binary magnitude of an event's count.
func magnitude(event *corev1.Event) int {
	count := event.Count
	if event.Series != nil {
		count = max(count, event.Series.Count)
	}
	return bits.Len32(uint32(max(count, 1)))
}
