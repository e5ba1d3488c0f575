// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
)

const (
	// maxRefusal bounds the text of a refusal, which goes into an event.
	maxRefusal = 900
	// maxMessage bounds what is read of an API server's message, which repeats names that the peer has chosen.
	maxMessage = 16 << 10
)

// ownPolicy is how an API server introduces the message of a policy of Liqo: the message alone states what to change.
var ownPolicy = regexp.MustCompile(`^ValidatingAdmissionPolicy 'liqo-[a-z-]+' with binding 'liqo-[a-z-]+' denied request: `)

// Refusal returns what a peer may know of an error of this cluster's API server about an object that it makes for the peer: the API server's own words, if they
// judge the object, without addresses and without names of others (see words). What else goes wrong is not about the object, so only its kind is reported, and
// the rest stays in the log of this cluster. names are what the peer itself has named in the object.
func Refusal(err error, namespace string, names ...string) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "the API server of this cluster does not answer; Liqo tries again"
	}
	if !Judges(err) {
		return fmt.Sprintf("the API server of this cluster cannot do that now (%s); Liqo tries again", apierrors.ReasonForError(err))
	}
	text := invalid(status.Status())
	if text == "" {
		text = withoutSubject(printable.Line(status.Status().Message, maxMessage))
	}
	if found := ownPolicy.FindString(text); found != "" {
		text = text[len(found):]
	}
	if text = withoutQuota(words(text, namespace, names)); text == "" {
		return "this cluster refuses it without a reason; its administrator finds the reason in the log of liqo-controller-manager"
	}
	return printable.Line("this cluster refuses it: "+text, maxRefusal)
}

// quota is how an API server begins the refusal of a quota, with its name.
var quota = regexp.MustCompile(`^(exceeded|failed) quota: [^\s,:]+[,:] `)

// withoutQuota leaves out of the refusal of a quota how it is called and how much of it is in use: what the object asks for, or must state, is enough
// to change it.
func withoutQuota(text string) string {
	found := quota.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	asked, _, _ := strings.Cut(text[len(found[0]):], ", used: ")
	return found[1] + " quota of this namespace: " + asked
}

// Judges reports whether an error of an API server judges the object: the same object is refused until it, or a rule of the cluster, is changed. Other errors
// are about the moment, or about who asks.
func Judges(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Reason {
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonExpired, metav1.StatusReasonGone:
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !slices.Contains([]int32{401, 408, 409, 429}, code)
}

// invalid lists which fields of the object the API server does not accept; empty if the error does not name fields.
func invalid(status metav1.Status) string {
	if status.Details == nil {
		return ""
	}
	var fields []string
	for _, cause := range status.Details.Causes {
		if strings.HasPrefix(cause.Field, "spec") || strings.HasPrefix(cause.Field, "metadata") {
			fields = append(fields, printable.Line(cause.Field+": "+cause.Message, maxRefusal))
		}
	}
	return strings.Join(fields, "; ")
}

// withoutSubject cuts what an API server begins a refusal with, such as `pods "web" is forbidden: `: the event is on the object.
func withoutSubject(message string) string {
	for _, verb := range []string{" is forbidden: ", " is invalid: "} {
		if subject, rest, found := strings.Cut(message, verb); found && !strings.Contains(subject, ": ") {
			return rest
		}
	}
	return message
}

// maxNames bounds what a peer is taken to have named: each is a guess at a name of another, which the text of a refusal would confirm.
const maxNames = 500

// Names returns what a peer has named in a ShadowPod: each text of it that is one word, such as the names of containers, images, labels and their values.
func Names(shadow *vkv1alpha1.ShadowPod) []string {
	names := []string{shadow.Name}
	add := func(text string) {
		if len(names) < maxNames && len(text) <= maxRefusal && text != "" && word.FindString(text) == text {
			names = append(names, text)
		}
	}
	spec := &shadow.Spec.Pod
	for _, first := range []any{spec.InitContainers, spec.Containers, spec.EphemeralContainers} { // the images of all of them before what else each has
		for i := range reflect.ValueOf(first).Len() {
			container := reflect.ValueOf(first).Index(i)
			add(container.FieldByName("Name").String())
			add(container.FieldByName("Image").String())
		}
	}
	for _, all := range []map[string]string{shadow.Labels, shadow.Annotations} {
		texts(reflect.ValueOf(all), add)
	}
	texts(reflect.ValueOf(spec), add)
	return names
}

// texts calls a function with each text in a value.
func texts(in reflect.Value, do func(string)) {
	switch in.Kind() {
	case reflect.String:
		do(in.String())
	case reflect.Pointer:
		if !in.IsNil() {
			texts(in.Elem(), do)
		}
	case reflect.Slice:
		for i := range in.Len() {
			texts(in.Index(i), do)
		}
	case reflect.Map:
		keys := in.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			texts(key, do)
			texts(in.MapIndex(key), do)
		}
	case reflect.Struct:
		for i := range in.NumField() {
			if in.Type().Field(i).IsExported() {
				texts(in.Field(i), do)
			}
		}
	}
}
