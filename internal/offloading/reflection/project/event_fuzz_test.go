// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/shadow"
)

// FuzzEvent: only warnings about the object of the same name in the remote namespace are copied, to that object. A copy is one that the API server accepts,
// and its texts are short and printable.
func FuzzEvent(f *testing.F) {
	const about = "web"
	f.Add([]byte{}, byte(0), "Pod", mapping.Remote, about, about, "BackOff", "restarting failed container")
	f.Add([]byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09"), byte(0), "ShadowPod", mapping.Remote, about, about, "", "")
	f.Add([]byte{}, byte(1), "Pod", mapping.Remote, about, about, "Pulled", "not a warning")
	f.Add([]byte{}, byte(2), "Pod", mapping.Remote, about, about, "BackOff", "an event of another namespace")
	f.Add([]byte{}, byte(0), "Pod", "kube-system", about, about, "BackOff", "about another namespace")
	f.Add([]byte{}, byte(3), "Widget", mapping.Remote, about, about, "Broken", "of a custom resource")
	f.Add([]byte{}, byte(3), "Service", mapping.Remote, about, about, "Broken", "of a custom resource with the name of a kind of Kubernetes")
	f.Add([]byte{}, byte(0), "Node", mapping.Remote, about, about, "NodeNotReady", "of another kind")
	f.Add([]byte{}, byte(0), "Pod", mapping.Remote, "another", about, "BackOff", "of another pod")
	f.Add([]byte{}, byte(0), "Service", mapping.Remote, "", "", "x", "of no name")
	f.Add([]byte{}, byte(0), "Ingress", mapping.Remote, about, about, "\x1b[2J\u202e"+strings.Repeat("ä", 200), "\x1b[2J\x00\xff"+strings.Repeat("ä", 2000))
	f.Add([]byte{}, byte(0), "PersistentVolumeClaim", mapping.Remote, strings.Repeat("a", 253), strings.Repeat("a", 253), strings.Repeat("a", 300), "a long name")
	dotted := strings.Repeat("a", 228) + ".b" + strings.Repeat("c", 20)
	f.Add([]byte{}, byte(0), "Pod", mapping.Remote, dotted, dotted, "a", "a long name that is cut after a dot")
	f.Fuzz(func(t *testing.T, data []byte, variant byte, kind, namespace, name, localName, reason, message string) {
		remote := &corev1.Event{}
		hostile(reflect.ValueOf(remote).Elem(), reader(data))
		remote.Namespace, remote.Type, remote.Reason, remote.Message = mapping.Remote, corev1.EventTypeWarning, reason, message
		remote.InvolvedObject.APIVersion, remote.InvolvedObject.Kind, remote.InvolvedObject.Namespace, remote.InvolvedObject.Name = "", kind, namespace, name
		switch variant {
		case 1:
			remote.Type = corev1.EventTypeNormal
		case 2:
			remote.Namespace = "kube-system"
		case 3:
			remote.InvolvedObject.APIVersion = "example.com/v1"
		}
		local := &metav1.ObjectMeta{Namespace: mapping.Local, Name: localName, UID: types.UID("local")}
		before := remote.DeepCopy()
		subject, shown := events.SubjectOf(mapping, remote)
		event := events.Copy(mapping, local, remote)
		if !reflect.DeepEqual(before, remote) {
			t.Fatal("an object of a cache was changed")
		}
		if kinds := "ShadowPod Pod Service ShadowEndpointSlice Ingress PersistentVolumeClaim"; shown != ((strings.Contains(" "+kinds+" ", " "+kind+" ") &&
			kind != "" || variant == 3) &&
			remote.Type == corev1.EventTypeWarning && remote.Namespace == mapping.Remote && namespace == mapping.Remote && name != "") {
			t.Fatalf("copied: %t: %s event in %s about %s %s/%s", shown, remote.Type, remote.Namespace, kind, namespace, name)
		}
		if variant == 3 && event != nil { // the local object is no custom resource
			t.Fatalf("an event about a custom resource becomes one of another object: %v", event)
		}
		if (event != nil) != (shown && name == localName && variant != 3) {
			t.Fatalf("an event about %s %q becomes one of %q: %v", kind, name, localName, event)
		}
		if event == nil || len(validation.IsDNS1123Subdomain(localName)) > 0 {
			return
		}
		text, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		var sent corev1.Event
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		object := corev1.ObjectReference{
			Kind: subject.Kind, APIVersion: sent.InvolvedObject.APIVersion, Namespace: mapping.Local, Name: localName, UID: "local",
			FieldPath: sent.InvolvedObject.FieldPath,
		}
		if faults := validation.IsDNS1123Subdomain(sent.Name); len(faults) > 0 || sent.Namespace != mapping.Local || sent.InvolvedObject != object ||
			sent.Type != corev1.EventTypeWarning {
			t.Errorf("event %q in %s about %+v: %v", sent.Name, sent.Namespace, sent.InvolvedObject, faults)
		}
		unprintable := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
		for _, one := range []struct {
			text string
			most int
		}{{sent.Message, 1024}, {sent.Reason, 128}, {sent.InvolvedObject.FieldPath, 1024}} {
			if len(one.text) > one.most || !utf8.ValidString(one.text) || strings.ContainsFunc(one.text, unprintable) {
				t.Errorf("%d bytes of text: %q", len(one.text), one.text)
			}
		}
		if sent.Reason == "" || sent.Count < 1 || sent.Source.Host != mapping.NodeName || len(text) > 4096 {
			t.Errorf("%s", text)
		}
	})
}

// FuzzAmended: whatever ShadowPod the peer returns, the rules of a provider admit what it becomes, and a second change adds nothing.
func FuzzAmended(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{})
	f.Add([]byte("\x05\x01\x02\x03\x04\x05\x06\x07\x08\x09"), []byte{}, []byte{1})
	for i := range byte(8) {
		there, desired := make([]byte, 4000), make([]byte, 4000)
		for j := range there {
			there[j], desired[j] = byte(j*j*7+j*13)^i*31, byte(j*j*5+j*11)^i*37
		}
		f.Add(there, desired, []byte{i, i + 1, i + 2})
	}
	f.Fuzz(func(t *testing.T, there, desired, more []byte) {
		var existing, intent corev1.PodSpec
		hostile(reflect.ValueOf(&existing).Elem(), reader(there))
		hostile(reflect.ValueOf(&intent).Elem(), reader(desired))
		next := reader(more)
		for _, spec := range []*corev1.PodSpec{&existing, &intent} { // what the peer knows, it returns
			hostile(reflect.ValueOf(&spec.Tolerations).Elem(), next)
			spec.Containers = append(spec.Containers, corev1.Container{Name: words[int(next())%len(words)], Image: words[int(next())%len(words)]})
			deadline := int64(int8(next()))
			if spec.ActiveDeadlineSeconds = &deadline; deadline == 0 {
				spec.ActiveDeadlineSeconds = nil
			}
		}
		kept, keptIntent := existing.DeepCopy(), intent.DeepCopy()
		amended := podspec.Amended(&existing, &intent)
		if !reflect.DeepEqual(kept, &existing) || !reflect.DeepEqual(keptIntent, &intent) {
			t.Fatal("an object of a cache was changed")
		}
		if problem := shadow.CheckUpdate(of(&existing), of(amended)); problem != "" {
			t.Errorf("the provider refuses the change: %s", problem)
		}
		if again := podspec.Amended(amended, &intent); !reflect.DeepEqual(again, amended) {
			t.Error("a second change changes more")
		}
		for i := range amended.Containers {
			if image := amended.Containers[i].Image; image != existing.Containers[i].Image && !strings.Contains(images(&intent), "\n"+image+"\n") {
				t.Errorf("image %q is nowhere in the intent", image)
			}
		}
	})
}

func of(spec *corev1.PodSpec) *vkv1alpha1.ShadowPod {
	return &vkv1alpha1.ShadowPod{Spec: vkv1alpha1.ShadowPodSpec{Pod: *spec.DeepCopy()}}
}

func images(spec *corev1.PodSpec) string {
	text := "\n"
	for i := range spec.Containers {
		text += spec.Containers[i].Image + "\n"
	}
	return text
}
