// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

// TestReachesVirtualNodes: only a template that tolerates every taint, and does not mention virtual nodes, gets there without asking for it.
func TestReachesVirtualNodes(t *testing.T) {
	every, virtual := corev1.Toleration{Operator: "Exists"}, corev1.Toleration{Key: "virtual-node.liqo.io/not-allowed", Operator: "Exists"}
	preferred := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(is("liqo.io/type", in, "virtual-node"))}},
	}}
	for name, test := range map[string]struct {
		tolerations []corev1.Toleration
		selector    map[string]string
		affinity    *corev1.Affinity
		want        bool
	}{
		"every taint":                   {tolerations: []corev1.Toleration{every}, want: true},
		"every taint among others":      {tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists"}, every}, want: true},
		"every taint of our effect":     {tolerations: []corev1.Toleration{{Operator: "Exists", Effect: "NoExecute"}}, want: true},
		"every taint of another effect": {tolerations: []corev1.Toleration{{Operator: "Exists", Effect: "NoSchedule"}}},
		"no taint":                      {},
		"another taint":                 {tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists"}}},
		"names our taint":               {tolerations: []corev1.Toleration{virtual}},
		"names our taint as well":       {tolerations: []corev1.Toleration{every, virtual}},
		"selects another label":         {tolerations: []corev1.Toleration{every}, selector: map[string]string{"kubernetes.io/os": "linux"}, want: true},
		"selects our label":             {tolerations: []corev1.Toleration{every}, selector: map[string]string{"liqo.io/type": "virtual-node"}},
		"requires another label":        {tolerations: []corev1.Toleration{every}, affinity: required(term(is("arch", in, "arm64"))), want: true},
		"requires our label": {
			tolerations: []corev1.Toleration{every},
			affinity:    required(term(is("arch", in, "arm64")), term(is("liqo.io/type", in, "virtual-node"))),
		},
		"avoids our label":      {tolerations: []corev1.Toleration{every}, affinity: required(term(is("liqo.io/type", notIn, "virtual-node")))},
		"prefers our label":     {tolerations: []corev1.Toleration{every}, affinity: preferred},
		"affinity of pods only": {tolerations: []corev1.Toleration{every}, affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}, want: true},
	} {
		if got := reachesVirtualNodes(&corev1.PodSpec{Tolerations: test.tolerations, NodeSelector: test.selector, Affinity: test.affinity}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAvoidVirtualNodes: the affinity is added to each term, a term that matches no node still matches none, and the rest stays.
func TestAvoidVirtualNodes(t *testing.T) {
	virtual, real := is("liqo.io/type", in, "virtual-node"), is("liqo.io/type", notIn, "virtual-node")
	disk, arch := is("disk", corev1.NodeSelectorOpExists), is("arch", in, "arm64")
	for name, test := range map[string]struct {
		before *corev1.Affinity
		want   []corev1.NodeSelectorTerm
	}{
		"no affinity":              {nil, terms(term(real))},
		"no affinity of nodes":     {&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}, terms(term(real))},
		"two terms":                {required(term(disk), term(arch)), terms(term(disk, real), term(arch, real))},
		"a term that fits nothing": {required(term(), term(arch)), terms(term(arch, real))},
		"only such terms":          {required(term()), terms(term(virtual, real))},
	} {
		pod := &corev1.PodSpec{Affinity: test.before.DeepCopy()}
		avoidVirtualNodes(pod)
		if diff := cmp.Diff(test.want, pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms); diff != "" {
			t.Errorf("%s: terms (-want +got)\n%s", name, diff)
		}
		if test.before != nil && !cmp.Equal(test.before.PodAffinity, pod.Affinity.PodAffinity) {
			t.Errorf("%s: the affinity of pods was changed", name)
		}
	}
}

// noOffloading is a reader without a NamespaceOffloading, or one that fails.
type noOffloading struct {
	client.Reader
	err error
}

func (n noOffloading) Get(_ context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return n.err
}

// TestDaemonSetFailsOpen: a DaemonSet is admitted with a warning if its namespace cannot be read, or if the review cannot be.
func TestDaemonSetFailsOpen(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	source := noOffloading{err: errors.New("the API server does not answer")}
	handler := &pods{options: Options{Cached: source, Live: source}, admitted: &admittedVersions{all: map[string]version{}}, decoder: admission.NewDecoder(scheme)}
	for _, text := range []string{
		`{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`,
		`{"apiVersion":"apps/v1","kind":"DaemonSet","spec":1}`, ``,
	} {
		response := handler.daemonSet(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "kube-system", Object: runtime.RawExtension{Raw: []byte(text)},
		}})
		if !response.Allowed || len(response.Patches) > 0 || !strings.Contains(strings.Join(response.Warnings, ""), "liqo.io/type NotIn virtual-node") {
			t.Errorf("%q: %+v", text, response)
		}
	}
}

// TestReplacesPods: a write that leaves the template as it is must leave the pods alone.
func TestReplacesPods(t *testing.T) {
	set := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "a:1"}}}}}}
	labelled, updated := set.DeepCopy(), set.DeepCopy()
	labelled.Labels, labelled.Spec.MinReadySeconds = map[string]string{"a": "b"}, 1
	updated.Spec.Template.Spec.Containers[0].Image = "a:2"
	if !replacesPods(nil, set) || replacesPods(set, labelled) || !replacesPods(set, updated) {
		t.Errorf("creation %t, label %t, image %t", replacesPods(nil, set), replacesPods(set, labelled), replacesPods(set, updated))
	}
}

// TestNodeOfDaemonSet: only pods that the controller of DaemonSets made are for one node.
func TestNodeOfDaemonSet(t *testing.T) {
	on := func(node string) *corev1.Affinity {
		return required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{is("metadata.name", in, node)}})
	}
	owned := func(kind string, affinity *corev1.Affinity) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: new(true)}}}, Spec: corev1.PodSpec{Affinity: affinity},
		}
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"of a DaemonSet":                   {owned("DaemonSet", on("worker")), "worker"},
		"of a DaemonSet, without affinity": {owned("DaemonSet", nil), ""},
		"of a DaemonSet, for two nodes": {
			owned("DaemonSet", required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{is("metadata.name", in, "a", "b")}})),
			"",
		},
		"of a DaemonSet, by label": {owned("DaemonSet", required(term(is("metadata.name", in, "worker")))), ""},
		"of a Job":                 {owned("Job", on("worker")), ""},
		"of a user":                {&corev1.Pod{Spec: corev1.PodSpec{Affinity: on("worker")}}, ""},
	} {
		if got := nodeOfDaemonSet(test.pod); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// FuzzDaemonSetReview: the webhook admits every DaemonSet, and patches nothing but affinity in the template, and that only if the template changed.
func FuzzDaemonSetReview(f *testing.F) {
	scheme := fuzzScheme(f)
	wide := `{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"template":{"spec":{"unknown":1,"tolerations":[{"operator":"Exists"}],` +
		`"containers":[{"name":"a"}]}}}}`
	f.Add(wide, "", "Remote")
	f.Add(wide, wide, "Local")
	f.Add(wide, `{}`, "Local")
	f.Add(`{}`, ``, `LocalAndRemote`)
	f.Fuzz(func(t *testing.T, object, old, strategy string) {
		source := oneOffloading{offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1alpha1.PodOffloadingStrategy(strategy)}}
		handler := &pods{
			options: Options{Cached: source, Live: source}, admitted: &admittedVersions{all: map[string]version{}},
			decoder: admission.NewDecoder(scheme),
		}
		answer := review(t, admission.HandlerFunc(handler.daemonSet), "shop", object, old)
		if answer == nil {
			return
		}
		if !answer.Allowed {
			t.Fatalf("refused: %+v", answer.Result)
		}
		if text := string(answer.Patch); text != "" && (!strings.Contains(text, `"path":"/spec/template/spec/affinity`) ||
			strings.Count(text, `"path"`) != 1 || object == old) {
			t.Fatalf("patched with %s", text)
		}
	})
}
