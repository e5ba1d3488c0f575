// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
)

// stored is an API server: the sizes of objects by path and name.
type stored map[string]map[string]int

func (s stored) list(_ context.Context, path, _ string) ([]byte, error) {
	var items []json.RawMessage
	for name, size := range s[path] {
		object := fmt.Sprintf(`{"metadata":{"name":%q},"data":%q}`, name, "")
		items = append(items, json.RawMessage(strings.Replace(object, `""`, `"`+strings.Repeat("x", size-len(object))+`"`, 1)))
	}
	return json.Marshal(map[string]any{"metadata": map[string]string{}, "items": items})
}

// TestPeerBytes: what a peer has counts in all its namespaces, also after a restart, and what it deletes does not.
func TestPeerBytes(t *testing.T) {
	const secrets = "/api/v1/namespaces/web-rome/secrets"
	api := stored{}
	namespaces := func(peer string) []string { return []string{"web-" + peer, "shop-" + peer} }
	options := BytesOptions{Most: 1000, Known: peerOf, Namespaces: namespaces}
	b := newPeerBytes(options, api.list)
	t.Cleanup(b.queue.ShutDown)
	key := func(namespace, name string) objectKey {
		return objectKey{schema.GroupResource{Resource: "secrets"}, namespace, name}
	}
	try := func(key objectKey, size int64, want bool) {
		t.Helper()
		if problem := b.take(key, size, false); (problem == "") != want {
			t.Errorf("%v of %d bytes: %q, want admitted: %t", key, size, problem, want)
		}
	}
	due := func(want int) {
		t.Helper()
		if have := b.queue.Len(); have != want {
			t.Errorf("%d counts are due, want %d", have, want)
		}
	}
	count := func(peer string) {
		t.Helper()
		for b.queue.Len() > 0 {
			next, _ := b.queue.Get()
			b.queue.Done(next)
		}
		if err := b.count(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
	}
	try(key("web-rome", "a"), 600, true)
	due(1) // what it had before this process started
	try(key("shop-rome", "b"), 500, false)
	try(key("web-milan", "a"), 900, true)
	if b.take(key("web-rome", "dry"), 400, true) != "" {
		t.Error("a dry run is refused")
	}
	try(key("shop-rome", "b"), 400, true)
	try(key("web-rome", "a"), 601, false)
	try(key("web-rome", "a"), 100, true)
	try(key("web-rome", "a"), 600, true)

	// Deleted by another one, or never stored: it counts until the next count.
	api[secrets] = map[string]int{"b": 300}
	try(key("web-rome", "c"), 300, false)
	count("rome")
	try(key("web-rome", "c"), 700, true)
	try(key("web-rome", "d"), 1, false)
	// What is admitted while the count runs is not lost.
	list := b.list
	b.list = func(ctx context.Context, path, next string) ([]byte, error) {
		text, err := list(ctx, path, next)
		if path == secrets {
			try(key("web-rome", "c"), 650, true)
		}
		return text, err
	}
	count("rome")
	b.list = list
	try(key("web-rome", "d"), 51, false)
	try(key("web-rome", "d"), 50, true)

	b = newPeerBytes(options, api.list)
	t.Cleanup(b.queue.ShutDown)
	api[secrets] = map[string]int{"a": 500, "b": 490}
	try(key("web-rome", "b"), 490, true)
	count("rome")
	try(key("shop-rome", "c"), 11, false)
	try(key("shop-rome", "c"), 10, true)
	// A smaller bound than what there is: an object may still become smaller.
	b.most = 500
	try(key("web-rome", "a"), 501, false)
	try(key("web-rome", "a"), 499, true)
	b.namespaces = func(string) []string { return nil }
	b.dropGone()
	if len(b.peers) > 0 {
		t.Errorf("peers without namespaces are kept: %v", b.peers)
	}
}

// TestPeerCustomResources: a peer has a number of each custom resource, whatever its name, and those that it deletes do not count. A kind that is not served
// hinders no count.
func TestPeerCustomResources(t *testing.T) {
	const path = "/apis/example.com/v1/namespaces/web-rome/widgets"
	widgets, maps := schema.GroupResource{Group: "example.com", Resource: "widgets"}, schema.GroupResource{Group: "example.com", Resource: NamespaceMaps}
	api := stored{}
	b := newPeerBytes(BytesOptions{
		Most: 1000, Custom: []schema.GroupResource{widgets, maps}, MostCustom: 2, Known: peerOf, Namespaces: func(peer string) []string { return []string{"web-" + peer} },
	}, api.list)
	t.Cleanup(b.queue.ShutDown)
	b.served = func(one schema.GroupResource) (schema.GroupVersionResource, error) {
		if one == widgets {
			return one.WithVersion("v1"), nil
		}
		return schema.GroupVersionResource{}, &meta.NoResourceMatchError{PartialResource: one.WithVersion("")}
	}
	try := func(name string, want bool) {
		t.Helper()
		if problem := b.take(objectKey{widgets, "web-rome", name}, 100, false); (problem == "") != want {
			t.Errorf("%s: %q, want admitted: %t", name, problem, want)
		}
	}
	try("a", true)
	try("b", true)
	try("c", false)
	try("b", true)
	api[path] = map[string]int{"b": 100}
	if err := b.count(t.Context(), "rome"); err != nil {
		t.Fatal(err)
	}
	try("c", true)
	try("d", false)
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Resource: metav1.GroupVersionResource(maps.WithVersion("v1")), Namespace: "web-rome", Name: "x"}}
	request.Object.Raw = make([]byte, 900)
	if b.admit(request) == "" {
		t.Error("a custom resource with the name of one of ours is not counted")
	}
}

// TestAttackH5Bytes: few large objects fill etcd as well. They are refused at the bound, and those that are deleted do not count.
func TestAttackH5Bytes(t *testing.T) {
	b := newEnv(t)
	mgr, err := kubemanager.New(b.admin, kubemanager.Options{Scheme: b.scheme, SkipNameValidation: true, Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Namespace{}: {}}}})
	b.Must(err)
	const size, most = 100 << 10, 1 << 20
	bytes, err := SetupPeerBytes(mgr, BytesOptions{Most: most, Known: func(string) string { return "rome-id" }, Namespaces: func(string) []string { return []string{remoteNamespace} }})
	b.Must(err)
	bytes.kinds = sized[:3] // this API server has not all of Liqo's resources
	kubetest.Start(t, "manager", mgr.Start)
	admitted := func(name string) bool {
		return bytes.take(objectKey{schema.GroupResource{Resource: "configmaps"}, remoteNamespace, name}, size, true) == ""
	}
	filler := func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: remoteNamespace, Name: fmt.Sprint("filler-", i)}, Data: map[string]string{"x": strings.Repeat("x", size)}}
	}
	for i := range recountPage + 5 { // stored before this process started: more than one page
		b.Make(filler(i))
	}
	b.Until("what is stored counts", func() bool { return !admitted("more") })
	for i := range recountPage + 5 {
		b.Must(b.Delete(t.Context(), filler(i)))
	}
	b.Until("what is deleted does not count", func() bool { return admitted("more") })
}
