// SPDX-License-Identifier: Apache-2.0

package events

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Limits of the API server for an event.
const (
	maxEventReason = 128
	maxEventNote   = 1024
)

// subjectOf returns the local kind of the object that a remote event is about. A custom resource has the same kind in both
// clusters, and the version is that of its local object.
func subjectOf(about *corev1.ObjectReference) (kind, version string, shown, custom bool) {
	group, _, _ := strings.Cut(about.APIVersion, "/")
	if !strings.Contains(about.APIVersion, "/") {
		group = ""
	}
	reflected := kinds.All()
	if !slices.ContainsFunc(reflected, func(kind *kinds.Kind) bool { return group == kind.Local.Group || group == kind.Remote.Group }) {
		return about.Kind, "", true, true
	}
	for _, kind := range reflected {
		if kind.Events && (about.Kind == kind.Remote.Kind || kind == kinds.Pod && about.Kind == kind.Local.Kind) {
			return kind.Local.Kind, kind.Local.GroupVersion().String(), true, false
		}
	}
	return "", "", false, false
}

// Component returns the reporting component of events about a kind, such as liqo-pod-reflection.
func Component(kind string) string { return "liqo-" + strings.ToLower(kind) + "-reflection" }

// Subject is the object that a remote event is about.
type Subject struct {
	// Kind and Name are those of the local object. Group is that of a custom resource.
	Kind, Group, Name string
	// RemoteKind and UID are those of the remote object: events of an earlier object of that name are not about this one.
	RemoteKind string
	UID        types.UID
}

// SubjectOf returns the object that a remote event is about, and whether the event is copied. Only warnings are copied: each event costs a write, and the
// status already shows what goes well.
func SubjectOf(m project.NamespaceMapping, remote *corev1.Event) (Subject, bool) {
	about := remote.InvolvedObject
	kind, _, shown, custom := subjectOf(&about)
	if !shown || remote.Type != corev1.EventTypeWarning || remote.Namespace != m.Remote || about.Namespace != m.Remote || about.Name == "" {
		return Subject{}, false
	}
	subject := Subject{Kind: kind, Name: about.Name, RemoteKind: about.Kind, UID: about.UID}
	if custom {
		subject.Group, _, _ = strings.Cut(about.APIVersion, "/")
	}
	return subject, true
}

// Copy returns the local event for a remote warning about the object that SubjectOf returned; nil if it is not copied. Copies of the same remote event
// have the same name, so a new count updates the local event.
func Copy(m project.NamespaceMapping, local metav1.Object, remote *corev1.Event) *coreapply.EventApplyConfiguration {
	subject, shown := SubjectOf(m, remote)
	if !shown || local.GetName() != subject.Name || local.GetNamespace() != m.Local {
		return nil
	}
	kind, version, _, custom := subjectOf(&remote.InvolvedObject)
	source := kind
	if custom {
		typed, ok := local.(interface {
			GroupVersionKind() schema.GroupVersionKind
		})
		if !ok || typed.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: subject.Group, Kind: kind}) {
			return nil
		}
		version, source = typed.GroupVersionKind().GroupVersion().String(), kind+"."+subject.Group
	}
	about := coreapply.ObjectReference().WithKind(kind).WithAPIVersion(version).
		WithNamespace(local.GetNamespace()).WithName(local.GetName()).WithUID(local.GetUID())
	about.FieldPath = project.Some(project.Text(remote.InvolvedObject.FieldPath, project.MaxReason))
	event := coreapply.Event(project.Short(local.GetName(), 253-17)+"."+longHash(m.RemoteID+"/"+string(remote.UID)), local.GetNamespace()).
		WithInvolvedObject(about).WithType(corev1.EventTypeWarning).
		WithReason(eventReason(remote.Reason)).WithMessage(project.Text(m.Spoken(remote.Message), maxEventNote)).
		WithSource(coreapply.EventSource().WithComponent(Component(source)).WithHost(m.NodeName)).
		WithReportingController(Component(source)).WithReportingInstance(m.NodeName)
	first, last, count := times(remote)
	if !first.IsZero() {
		event.WithFirstTimestamp(first)
	}
	if !last.IsZero() {
		event.WithLastTimestamp(last)
	}
	return event.WithCount(count)
}

// times returns the timestamps and the count of an event in either form: the older has a count, the newer a series.
func times(remote *corev1.Event) (first, last metav1.Time, count int32) {
	first, last, count = remote.FirstTimestamp, remote.LastTimestamp, remote.Count
	if first.IsZero() {
		first = metav1.NewTime(remote.EventTime.Time)
	}
	if series := remote.Series; series != nil {
		last, count = metav1.NewTime(series.LastObservedTime.Time), max(count, series.Count)
	}
	if last.IsZero() {
		last = first
	}
	return project.Moment(first), project.Moment(last), max(count, 1)
}

// longHash is for input that the peer chooses, and therefore longer than hash.
func longHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// eventReason reduces a reason to the letters and digits of one word.
func eventReason(theirs string) string {
	word := strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return r
	}, theirs)
	if word == "" {
		return "Unknown"
	}
	return word[:min(len(word), maxEventReason)]
}
