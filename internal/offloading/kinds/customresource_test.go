// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	one := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal([]byte(text), &one.Object); err != nil {
		t.Fatal(err)
	}
	return one
}

// TestCustomResource: the copy has all of the object but what only this cluster writes.
func TestCustomResource(t *testing.T) {
	mapping := project.NamespaceMapping{
		LocalID: "rome", RemoteID: "milan", Local: "shop", Remote: "shop-rome",
		Skip: project.Denied{Labels: project.Keys{"secret"}},
	}
	local := object(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"shop","name":"lamp","uid":"1","generation":3,"resourceVersion":"7",
		"labels":{"app":"x","secret":"y"},"annotations":{"note":"n","liqo.io/local-generation":"99","kubectl.kubernetes.io/last-applied-configuration":"{}"},
		"finalizers":["example.com/hold"],"ownerReferences":[{"uid":"2"}]},"spec":{"size":2},"data":{"a":"b"},"status":{"phase":"Lit"}}`)
	want := object(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"shop-rome","name":"lamp",
		"labels":{"app":"x","virtualkubelet.liqo.io/origin":"rome","virtualkubelet.liqo.io/destination":"milan"},
		"annotations":{"note":"n","liqo.io/local-generation":"3"}},"spec":{"size":2},"data":{"a":"b"}}`)
	if diff := cmp.Diff(want, CopyCustomResource(mapping, local)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	local.SetAnnotations(map[string]string{labels.SkipReflection: ""})
	if got := CopyCustomResource(mapping, local); got != nil {
		t.Errorf("a skipped object becomes %v", got)
	}
}

// TestCustomStatus: what was observed of the newest copy is about the local generation that it has, and what was observed before is about an earlier one.
func TestCustomStatus(t *testing.T) {
	for _, test := range []struct{ name, copied, want string }{
		{"none", `{"metadata":{"generation":4}}`, `null`},
		{"without fields", `{"status":{}}`, `null`},
		{"no object", `{"status":"Lit"}`, `null`},
		{"no generation", `{"status":{"phase":"Lit"}}`, `{"phase":"Lit"}`},
		{"observed", `{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"2"}},"status":{"observedGeneration":4}}`, `{"observedGeneration":2}`},
		{
			"not yet observed", `{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"2"}},"status":{"observedGeneration":3}}`,
			`{"observedGeneration":1}`,
		},
		{"beyond", `{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"2"}},"status":{"observedGeneration":9}}`, `{"observedGeneration":2}`},
		{
			"conditions",
			`{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"2"}},"status":{"conditions":[
				{"type":"Ready","observedGeneration":4},{"type":"Synced","observedGeneration":1},"x"]}}`,
			`{"conditions":[{"type":"Ready","observedGeneration":2},{"type":"Synced","observedGeneration":1},"x"]}`,
		},
		{"not known of which", `{"metadata":{"generation":4},"status":{"observedGeneration":4}}`, `{"observedGeneration":0}`},
		{"negative", `{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"-5"}},"status":{"observedGeneration":4}}`, `{"observedGeneration":0}`},
		{
			"nonsense", `{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"two"}},"status":{"observedGeneration":"4","conditions":{}}}`,
			`{"observedGeneration":"4","conditions":{}}`,
		},
	} {
		var want map[string]any
		if err := utiljson.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		copied := object(t, test.copied)
		before := copied.DeepCopy()
		if diff := cmp.Diff(want, CustomStatus(copied)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
		if diff := cmp.Diff(before, copied); diff != "" {
			t.Errorf("%s: the copy was changed (-before +after)\n%s", test.name, diff)
		}
	}
}

// FuzzCustomStatus: whatever a peer writes, no generation is shown that the local object has not had.
func FuzzCustomStatus(f *testing.F) {
	f.Add([]byte(`{"metadata":{"generation":4,"annotations":{"liqo.io/local-generation":"2"}},
		"status":{"observedGeneration":4,"conditions":[{"observedGeneration":3}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		copied := &unstructured.Unstructured{}
		if utiljson.Unmarshal(text, &copied.Object) != nil {
			return
		}
		status := CustomStatus(copied)
		if observed, ok := status["observedGeneration"].(int64); ok && observed < 0 {
			t.Errorf("generation %d", observed)
		}
	})
}
