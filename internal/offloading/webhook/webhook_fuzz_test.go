// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/quota"
	"liqo.io/liqo/internal/offloading/shadow"
)

// exponent matches numbers that take minutes to parse as a quantity: see TestHostileQuantities.
var exponent = regexp.MustCompile(`[0-9][eE][+-]?[0-9]{3,}`)

// fuzzScheme has every type that the webhooks decode.
func fuzzScheme(f *testing.F) *runtime.Scheme {
	f.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, offloadingv1alpha1.AddToScheme, vkv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			f.Fatal(err)
		}
	}
	return scheme
}

// review sends an AdmissionReview with these objects through the HTTP handler, as the API server does. It returns nothing if the objects are no JSON.
func review(t *testing.T, handler admission.Handler, namespace, object, old string) *admissionv1.AdmissionResponse {
	t.Helper()
	for _, text := range []string{object, old} {
		if exponent.MatchString(text) || text != "" && !json.Valid([]byte(text)) {
			return nil
		}
	}
	request := &admissionv1.AdmissionRequest{
		UID: "review", Operation: admissionv1.Create, Namespace: namespace, Object: runtime.RawExtension{Raw: []byte(object)}, DryRun: new(true),
	}
	if old != "" {
		request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(old)}
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		return nil
	}
	httpRequest := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	httpRequest.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	(&admission.Webhook{Handler: handler}).ServeHTTP(recorder, httpRequest)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil || answer.Response.UID != "review" {
		t.Fatalf("status %d, %v: %.300s", recorder.Code, err, recorder.Body)
	}
	if result := answer.Response.Result; !answer.Response.Allowed && (result == nil || result.Code < 400 || !utf8.ValidString(result.Message)) {
		t.Fatalf("refused with %+v", result)
	}
	return answer.Response
}

// FuzzShadowPodReview: no text of a peer breaks the webhook, and what it admits keeps to the rules and to the quota.
func FuzzShadowPodReview(f *testing.F) {
	scheme := fuzzScheme(f)
	seed := func(change func(*vkv1alpha1.ShadowPod)) string {
		text, err := json.Marshal(shadowPodNamed("web", change))
		if err != nil {
			f.Fatal(err)
		}
		return strings.Replace(string(text), "{", `{"apiVersion":"virtualkubelet.liqo.io/v1alpha1","kind":"ShadowPod",`, 1)
	}
	plain := seed(nil)
	held := seed(func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{"example.com/held"} })
	f.Add(plain, "")
	f.Add(plain, held)
	f.Add(held, plain)
	f.Add(held, "")
	f.Add(seed(func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Image = "new" }), plain)
	f.Add(seed(func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostNetwork = true }), plain)
	f.Add(seed(func(s *vkv1alpha1.ShadowPod) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), held)
	f.Add(seed(func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.Containers[0].Resources.Limits = nil }), "")
	for _, text := range []string{
		`{}`, `null`, `[]`, `{"kind":"Pod","apiVersion":"v1"}`, strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000),
		`{"spec":{"pod":{"containers":[null]}}}`,
	} {
		f.Add(text, "")
		f.Add(plain, text)
	}
	f.Fuzz(func(t *testing.T, object, old string) {
		counting := &Quota{known: quota.NewLedger(true, quota.Defaults{}), reserved: quota.NewLedger(true, quota.Defaults{}), filled: true}
		counting.known.SetGrant("rome-id", types.NamespacedName{Name: "slice"}, corev1.ResourceList{
			"cpu":    *shadowPodNamed("", nil).Spec.Pod.Containers[0].Resources.Limits.Cpu(),
			"memory": *shadowPodNamed("", nil).Spec.Pod.Containers[0].Resources.Limits.Memory(), "pods": resource.MustParse("1"),
		})
		handler := newShadowPod(scheme, ShadowPodOptions{
			RemoteNamespaces: remoteNamespaces{remoteNamespace: "rome-id"}, Level: shadow.Baseline, Quota: counting, Now: func() time.Time { return time.Unix(0, 0) },
		})
		for namespace, message := range map[string]string{"apps": "namespace without a peer", "unknown": "namespace whose peer cannot be read"} {
			if answer := review(t, handler, namespace, object, old); answer != nil && answer.Allowed && old == "" {
				t.Fatalf("admitted in a %s", message)
			}
		}
		answer := review(t, handler, remoteNamespace, object, old)
		if answer == nil || !answer.Allowed {
			return
		}
		var now, before vkv1alpha1.ShadowPod
		if err := utiljson.Unmarshal([]byte(object), &now); err != nil {
			t.Fatalf("admitted an object that cannot be read: %v", err)
		}
		if old != "" && utiljson.Unmarshal([]byte(old), &before) == nil && now.DeletionTimestamp != nil && len(now.Finalizers) < len(before.Finalizers) {
			return // finalizers are removed during a deletion
		}
		if problem := shadow.Check(&now, "rome-id", shadow.Baseline); problem != "" {
			t.Fatalf("admitted although %s", problem)
		}
		if old == "" && slices.ContainsFunc(now.Finalizers, func(name string) bool { return name != labels.FinalizerPodGone }) {
			t.Fatalf("admitted with finalizers %v", now.Finalizers)
		}
		for i := range now.Spec.Pod.Containers {
			if cpu := now.Spec.Pod.Containers[i].Resources.Limits.Cpu(); old == "" && (cpu.Sign() <= 0 || cpu.MilliValue() > 1000) {
				t.Fatalf("admitted %v CPUs of 1", cpu)
			}
		}
	})
}

// oneOffloading is a reader that has the NamespaceOffloading of every namespace.
type oneOffloading struct {
	offloadingv1alpha1.NamespaceOffloadingSpec
}

func (o oneOffloading) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	offloading, ok := into.(*offloadingv1alpha1.NamespaceOffloading)
	if !ok {
		return fmt.Errorf("read a %T", into)
	}
	offloading.Namespace, offloading.Name, offloading.Spec = key.Namespace, key.Name, o.NamespaceOffloadingSpec
	return nil
}

func (oneOffloading) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("nothing is listed")
}

// FuzzPodReview: the webhook of pods patches where a pod may run, and its managed fields, and nothing else of it.
func FuzzPodReview(f *testing.F) {
	scheme := fuzzScheme(f)
	for _, strategy := range []string{"Local", "Remote", "LocalAndRemote", "x"} {
		f.Add(`{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-"},"spec":{"containers":[{"name":"a"}]}}`, strategy, `[]`)
		f.Add(`{"apiVersion":"v1","kind":"Pod","spec":{"unknown":1,`+
			`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"disk",`+
			`"operator":"Exists"}]},{}]}}}}}`,
			strategy, `[{"matchExpressions":[{"key":"region","operator":"In","values":["europe"]}]},{}]`)
		f.Add(`{"apiVersion":"v1","kind":"Pod","metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"1",`+
			`"controller":true}],"managedFields":[{"manager":"x","operation":"Update"}]}}`, strategy, `[]`)
		f.Add(`{}`, strategy, `null`)
	}
	f.Fuzz(func(t *testing.T, object, strategy, terms string) {
		var selected []corev1.NodeSelectorTerm
		if json.Unmarshal([]byte(terms), &selected) != nil || len(terms) > 4096 || len(object) > 1<<16 {
			return
		}
		source := oneOffloading{offloadingv1alpha1.NamespaceOffloadingSpec{
			PodOffloadingStrategy: offloadingv1alpha1.PodOffloadingStrategy(strategy), ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: selected},
		}}
		handler := &pods{
			options: Options{Cached: source, Live: source}, admitted: &admittedVersions{all: map[string]version{}},
			decoder: admission.NewDecoder(scheme),
		}
		answer := review(t, admission.HandlerFunc(handler.handle), "shop", object, "")
		if answer == nil || !answer.Allowed || len(answer.Patch) == 0 {
			return
		}
		var ops []struct{ Path string }
		if err := json.Unmarshal(answer.Patch, &ops); err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			if !strings.HasPrefix(op.Path, "/spec/affinity") && !strings.HasPrefix(op.Path, "/spec/tolerations") && op.Path != "/metadata/managedFields" {
				t.Fatalf("a patch of %s", op.Path)
			}
		}
		if strategy == string(offloadingv1alpha1.PodsLocal) {
			t.Fatalf("the pod stays local, and is patched: %s", answer.Patch)
		}
	})
}

// FuzzOffloadingReview: no NamespaceOffloading breaks the webhook, and only one with the fixed name is admitted.
func FuzzOffloadingReview(f *testing.F) {
	scheme := fuzzScheme(f)
	good := `{"apiVersion":"offloading.liqo.io/v1alpha1","kind":"NamespaceOffloading","metadata":{"namespace":"shop","name":"offloading"},` +
		`"spec":{"namespaceMappingStrategy":"DefaultName","podOffloadingStrategy":"Remote",` +
		`"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}}`
	f.Add(good, "")
	f.Add(good, strings.Replace(good, "DefaultName", "EnforceSameName", 1))
	f.Add(strings.Replace(good, `"name":"offloading"`, `"name":"mine"`, 1), "")
	f.Add(strings.Replace(good, `"Exists"`, `"Like"`, 1), good)
	f.Add(
		strings.Replace(good, `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"`+labels.APIServerSupport+`":"x"},`, 1),
		good,
	)
	f.Add(`{}`, `{}`)
	f.Fuzz(func(t *testing.T, object, old string) {
		handler := &offloadings{options: Options{Namespace: "liqo"}, admitted: &admittedVersions{all: map[string]version{}}, decoder: admission.NewDecoder(scheme)}
		answer := review(t, admission.HandlerFunc(handler.handle), "shop", object, old)
		if answer == nil || !answer.Allowed {
			return
		}
		var now offloadingv1alpha1.NamespaceOffloading
		if err := utiljson.Unmarshal([]byte(object), &now); err != nil {
			t.Fatalf("admitted an object that cannot be read: %v", err)
		}
		if now.DeletionTimestamp == nil && (now.Name != offloadingv1alpha1.NamespaceOffloadingName || old == "" && strings.HasPrefix(now.Namespace, "kube-")) {
			t.Fatalf("admitted %s/%s", now.Namespace, now.Name)
		}
	})
}
