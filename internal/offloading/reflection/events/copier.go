// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"math/bits"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// oldEvent is the age from which a process that has just started ignores an event.
const oldEvent = time.Minute

// Copier copies warnings about remote objects to the local objects.
type Copier struct {
	// Source caches the remote events.
	Source *fanin.Source

	recorder *Recorder
	options  CopierOptions
}

// CopierOptions is what a Copier does not know itself.
type CopierOptions struct {
	// Remote waits until the peer is reachable, and returns its client.
	Remote func(context.Context) (client.WithWatch, error)
	// Local writes events here.
	Local client.Client
	// Mapping returns the mapping of a remote namespace; false if it has none.
	Mapping func(remote string) (project.NamespaceMapping, bool)
	// Object returns the local object that a remote event is about; nil if there is none, or if the event is about an earlier remote object of that name.
	Object func(project.NamespaceMapping, Subject) client.Object
}

// NewCopier returns a copier whose events count as those of the recorder.
func NewCopier(recorder *Recorder, o CopierOptions) *Copier {
	r := &Copier{recorder: recorder, options: o}
	r.Source = fanin.New(fanin.Options{
		Object: &corev1.Event{}, List: func() client.ObjectList { return &corev1.EventList{} },
		Client: o.Remote,
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
func (r *Copier) changed(before, after client.Object) {
	event, _ := after.(*corev1.Event)
	if event == nil {
		return
	}
	if last, _ := before.(*corev1.Event); last != nil && magnitude(last) == magnitude(event) {
		return
	}
	mapping, is := r.options.Mapping(event.Namespace)
	if !is {
		return
	}
	subject, shown := SubjectOf(mapping, event)
	if !shown {
		return
	}
	local := r.options.Object(mapping, subject)
	if local == nil || !r.Source.Synced(event.Namespace) && outdated(local, event) || !r.recorder.allow(local.GetNamespace()) {
		return
	}
	if intent := Copy(mapping, local, event); intent != nil {
		r.recorder.send(func(ctx context.Context) error {
			return r.options.Local.Apply(ctx, intent, client.FieldOwner(labels.OwnerReflection), client.ForceOwnership)
		})
	}
}

// Arrived copies the events of a remote object that was not known when they arrived: watches of different kinds keep no order among each other.
func (r *Copier) Arrived(before, after client.Object) {
	if after == nil || before != nil && before.GetUID() == after.GetUID() {
		return
	}
	for _, object := range r.Source.All(after.GetNamespace()) {
		if event, _ := object.(*corev1.Event); event != nil && event.InvolvedObject.UID == after.GetUID() && time.Since(lastSeen(event)) <= oldEvent {
			r.changed(nil, event)
		}
	}
}

// outdated recognises events from before this process started, which an earlier process has copied or which no longer matter.
func outdated(local client.Object, event *corev1.Event) bool {
	pod, ok := local.(*corev1.Pod)
	return !ok || podplan.Ready(&pod.Status) || podphase.Final(pod.Status.Phase) || time.Since(lastSeen(event)) > oldEvent
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
