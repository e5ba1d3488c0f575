// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func TestTally(t *testing.T) {
	ours, theirs := map[string]string{"virtualkubelet.liqo.io/origin": "rome-id"}, map[string]string{"virtualkubelet.liqo.io/origin": "turin-id"}
	for what, test := range map[string]struct {
		kind string
		meta metav1.ObjectMeta
		want offloadingv1alpha1.RemoteNamespaceContents
	}{
		"a copy": {
			"Pod", metav1.ObjectMeta{Name: "web", Labels: ours}, offloadingv1alpha1.RemoteNamespaceContents{Copies: map[string]int32{"Pod": 1}},
		},
		"a copy of another cluster": {
			"Pod",
			metav1.ObjectMeta{Name: "web", Labels: theirs},
			offloadingv1alpha1.RemoteNamespaceContents{Others: &offloadingv1alpha1.FoundObjects{Count: 1, Names: []string{"Pod web"}}},
		},
		"a ConfigMap of every namespace": {"ConfigMap", metav1.ObjectMeta{Name: "kube-root-ca.crt"}, offloadingv1alpha1.RemoteNamespaceContents{}},
		"the token of a service account": {
			"Secret",
			metav1.ObjectMeta{Name: "default-token-x", Annotations: map[string]string{"kubernetes.io/service-account.name": "default"}},
			offloadingv1alpha1.RemoteNamespaceContents{},
		},
		"a claim with the data of a volume": {
			"PersistentVolumeClaim",
			metav1.ObjectMeta{Name: "data", Annotations: map[string]string{"storage.liqo.io/virtual-volume": "pvc-1"}},
			offloadingv1alpha1.RemoteNamespaceContents{},
		},
		"a claim of a forgotten volume": {
			"PersistentVolumeClaim",
			metav1.ObjectMeta{Name: "data", Labels: ours, Annotations: map[string]string{"storage.liqo.io/virtual-volume": "pvc-2"}},
			offloadingv1alpha1.RemoteNamespaceContents{Claims: &offloadingv1alpha1.FoundObjects{Count: 1, Names: []string{"data"}}},
		},
		"a claim without a volume": {
			"PersistentVolumeClaim",
			metav1.ObjectMeta{Name: "data"},
			offloadingv1alpha1.RemoteNamespaceContents{Claims: &offloadingv1alpha1.FoundObjects{Count: 1, Names: []string{"data"}}},
		},
	} {
		tally := &Tally{Consumer: "rome-id", Volumes: []string{"pvc-1"}}
		tally.Add(test.kind, &test.meta)
		test.want.RemoteNamespace = "shop-rome"
		if diff := cmp.Diff(test.want, tally.Contents("shop-rome")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// TestTallyIsBounded: a namespace with any number of objects is answered with ten names of each sort.
func TestTallyIsBounded(t *testing.T) {
	tally := &Tally{Consumer: "rome-id"}
	for i := range 1000 {
		for _, kind := range Kinds() {
			tally.Add(kind.Kind, &metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", strings.Repeat("x", 200), i)})
		}
	}
	found := tally.Contents("shop-rome")
	text, err := json.Marshal(found)
	if err != nil || len(text) > 6000 || found.Claims.Count != 1000 || found.Others.Count != 5000 {
		t.Errorf("%v, %d bytes, %d claims and %d others", err, len(text), found.Claims.Count, found.Others.Count)
	}
}

func TestHeldBy(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "milan-1", Labels: map[string]string{"liqo.io/remoteID": "milan-id"}}
	status := func(phase vkv1alpha1.MappingPhase, name string) vkv1alpha1.NamespaceMap {
		return vkv1alpha1.NamespaceMap{
			ObjectMeta: meta, Spec: vkv1alpha1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}},
			Status: vkv1alpha1.NamespaceMapStatus{CurrentMapping: map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {RemoteNamespace: name, Phase: phase}}},
		}
	}
	unwanted := status("Terminating", "shop-rome")
	unwanted.Spec.DesiredMapping = nil
	got := HeldBy([]vkv1alpha1.NamespaceMap{
		status("Accepted", "shop-rome"), unwanted, status("CreationLoopBackOff", "shop-rome"), status("Accepted", ""), {ObjectMeta: meta},
	}, "shop")
	if want := []Held{{"milan-1", "milan-id", "shop-rome", true}, {"milan-1", "milan-id", "shop-rome", false}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if held := HeldBy([]vkv1alpha1.NamespaceMap{status("Accepted", "shop-rome")}, "other"); held != nil {
		t.Errorf("another namespace: %+v", held)
	}
}

// TestRequest: the controller manager reads what liqoctl writes, and liqoctl accepts the answer to its own request only.
func TestRequest(t *testing.T) {
	request, clusters := Asked(map[string]string{"liqo.io/count-remote-contents": Ask("A1", []string{"milan-1", "turin-1"})})
	if request != "A1" || !slices.Equal(clusters, []string{"milan-1", "turin-1"}) {
		t.Errorf("%q of %q", request, clusters)
	}
	for _, value := range []string{"", " ", strings.Repeat("A", 65) + " milan-1"} {
		if request, _ := Asked(map[string]string{"liqo.io/count-remote-contents": value}); request != "" {
			t.Errorf("%q is request %q", value, request)
		}
	}
	held := Held{Cluster: "milan-1", Namespace: "shop-rome"}
	answer := func(request, cluster, namespace, failure string) *offloadingv1alpha1.RemoteContents {
		return &offloadingv1alpha1.RemoteContents{Request: request, Clusters: map[string]offloadingv1alpha1.RemoteNamespaceContents{
			cluster: {RemoteNamespace: namespace, Error: failure, Copies: map[string]int32{"Pod": 2}},
		}}
	}
	for what, test := range map[string]struct {
		answer *offloadingv1alpha1.RemoteContents
		want   string
	}{
		"the answer":                  {answer("A1", "milan-1", "shop-rome", ""), ""},
		"none":                        {nil, "no answer to request A1"},
		"an earlier one":              {answer("A0", "milan-1", "shop-rome", ""), "no answer to request A1"},
		"about another cluster":       {answer("A1", "turin-1", "shop-rome", ""), "did not count"},
		"about an earlier namespace":  {answer("A1", "milan-1", "shop-other", ""), "did not count"},
		"that the provider is silent": {answer("A1", "milan-1", "shop-rome", "no answer within 10s"), "no answer within 10s"},
	} {
		found, err := Answered(test.answer, "A1", held)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || err == nil && found.Copies["Pod"] != 2 {
			t.Errorf("%s: %+v, %v, want %q", what, found, err, test.want)
		}
	}
}

// FuzzAnswer: whatever names and errors a provider chooses, the answer fits the limits of the definition, and is printable.
func FuzzAnswer(f *testing.F) {
	f.Add("Pod", "web", "no answer within 10s")
	f.Add("PersistentVolumeClaim", "\x1b[2J", "\x1b]0;x\a\xff\u202e")
	f.Add("Secret", strings.Repeat("ä", 300), strings.Repeat("é", 400))
	f.Fuzz(func(t *testing.T, kind, name, failure string) {
		if !slices.Contains([]string{"Pod", "PersistentVolumeClaim"}, kind) {
			kind = "Secret"
		}
		tally := &Tally{Consumer: "rome-id"}
		tally.Add(kind, &metav1.ObjectMeta{Name: name})
		found := tally.Contents("shop-rome")
		for _, objects := range []*offloadingv1alpha1.FoundObjects{found.Claims, found.Others} {
			if objects != nil && (len(objects.Names) > 10 ||
				slices.ContainsFunc(objects.Names, func(name string) bool { return len(name) > 300 || unprintable(name) })) {
				t.Errorf("names %q", objects.Names)
			}
		}
		if text := Unread("shop-rome", errors.New(failure)).Error; text == "" || len(text) > 1024 || unprintable(text) {
			t.Errorf("error %q", text)
		}
	})
}

func unprintable(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) })
}
