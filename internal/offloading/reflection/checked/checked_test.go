// SPDX-License-Identifier: Apache-2.0

package checked

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

func kinds(t *testing.T) (*runtime.Scheme, meta.RESTMapper) {
	t.Helper()
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, vkv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	for _, kind := range []string{"Service", "ConfigMap", "Secret", "PersistentVolumeClaim"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(vkv1alpha1.GroupVersion.WithKind("ShadowPod"), meta.RESTScopeNamespace)
	return scheme, mapper
}

// hostilePods answers every request for pods with one pod, as a protocol buffer, whatever encoding was asked for.
func hostilePods(t *testing.T, pod *corev1.Pod, tamper func(string) string) client.WithWatch {
	t.Helper()
	scheme, mapper := kinds(t)
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encode := func(object runtime.Object, encoder runtime.Encoder) []byte {
		var text bytes.Buffer
		if err := encoder.Encode(object, &text); err != nil {
			t.Error(err)
		}
		return []byte(tamper(text.String()))
	}
	whole := codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Has("watch"):
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
			event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: encode(pod, whole)}}
			if _, err := info.StreamSerializer.Framer.NewFrameWriter(w).Write(encode(event, info.StreamSerializer.Serializer)); err != nil {
				t.Error(err)
			}
		case strings.HasSuffix(r.URL.Path, "/web"):
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(encode(pod, whole))
		default:
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(encode(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*pod}}, whole))
		}
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL}, server.Client(), scheme, mapper)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podOver returns a pod that has an amount of the same length as the tests' bomb.
func podOver(amount string) *corev1.Pod {
	list := corev1.ResourceList{"cpu": resource.MustParse(amount)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "remote", ResourceVersion: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "never-read"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", AllocatedResources: list}}},
	}
}

// refuses fails the test unless each object, each list and a watch of pods end with an error about a quantity.
func refuses(t *testing.T, c client.WithWatch, objects []client.Object, lists []client.ObjectList) {
	t.Helper()
	key, in := client.ObjectKey{Namespace: "remote", Name: "web"}, client.InNamespace("remote")
	expect := func(what any, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "is not an amount that can be read") {
			t.Errorf("%T: %v", what, err)
		}
	}
	for _, object := range objects {
		expect(object, c.Get(t.Context(), key, object))
	}
	for _, list := range lists {
		expect(list, c.List(t.Context(), list, in))
	}
	if event := firstPod(t, c); event.Type == watch.Added {
		t.Errorf("the watch delivers %v", event.Object)
	}
}

// firstPod returns the first event of a watch of pods.
func firstPod(t *testing.T, c client.WithWatch) watch.Event {
	t.Helper()
	events, err := c.Watch(t.Context(), &corev1.PodList{}, client.InNamespace("remote"))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	return <-events.ResultChan()
}

// TestAttackM7QuantityBombInProtobuf is TestAttackM7QuantityBomb with protocol buffers. A client that checked JSON only would hang.
func TestAttackM7QuantityBombInProtobuf(t *testing.T) {
	const amount, bomb = "123456789012", "1e-200000000"
	c := hostilePods(t, podOver(amount), func(text string) string { return strings.ReplaceAll(text, amount, bomb) })
	refuses(t, c, []client.Object{&corev1.Pod{}}, []client.ObjectList{&corev1.PodList{}})
}

// TestCheckedPodsInProtobuf: ordinary pods are read as before, except for their spec.
func TestCheckedPodsInProtobuf(t *testing.T) {
	want := podOver("123456789012")
	c := hostilePods(t, want, func(text string) string { return text })
	in := client.InNamespace("remote")
	var pod corev1.Pod
	var pods corev1.PodList
	if err := errors.Join(c.Get(t.Context(), client.ObjectKey{Namespace: "remote", Name: "web"}, &pod), c.List(t.Context(), &pods, in)); err != nil {
		t.Fatal(err)
	}
	event := firstPod(t, c)
	watched, ok := event.Object.(*corev1.Pod)
	if !ok || len(pods.Items) != 1 || pods.ResourceVersion != "1" {
		t.Fatalf("list %v, event %v %v", pods, event.Type, event.Object)
	}
	want.Spec = corev1.PodSpec{}
	for what, got := range map[string]*corev1.Pod{"Get": &pod, "List": &pods.Items[0], "Watch": watched} {
		if got.TypeMeta = (metav1.TypeMeta{}); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
}

// hostileAPI answers every request for pods and ShadowPods with one object.
func hostileAPI(t *testing.T, status, spec string) client.WithWatch {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		version, kind, body := "v1", "Pod", `"status":`+status
		if strings.Contains(r.URL.Path, "shadowpods") {
			version, kind, body = "virtualkubelet.liqo.io/v1alpha1", "ShadowPod", `"spec":{"pod":`+spec+`}`
		}
		object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"web","namespace":"remote","resourceVersion":"1"},%s}`, version, kind, body)
		switch {
		case r.URL.Query().Has("watch"):
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, object)
		case strings.HasSuffix(r.URL.Path, "/web"):
			fmt.Fprint(w, object)
		default:
			fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"1"},"items":[%s]}`, version, kind, object)
		}
	}))
	t.Cleanup(server.Close)
	scheme, mapper := kinds(t)
	c, err := NewClient(&rest.Config{Host: server.URL}, server.Client(), scheme, mapper)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAttackM7QuantityBomb: a provider reports a pod with a quantity that takes hours to parse. Each way to read it ends at once with an error. Against
// a client without the check, this test hangs.
func TestAttackM7QuantityBomb(t *testing.T) {
	const bomb = `"1e-2000000000"`
	c := hostileAPI(t, `{"containerStatuses":[{"name":"c","allocatedResources":{"cpu":`+bomb+`}}]}`,
		`{"containers":[{"name":"c","resources":{"requests":{"cpu":`+bomb+`}}}]}`)
	refuses(t, c, []client.Object{&vkv1alpha1.ShadowPod{}, &corev1.Pod{}}, []client.ObjectList{&vkv1alpha1.ShadowPodList{}, &corev1.PodList{}})
}

// TestCheckedPods: ordinary objects are read as before, except for the spec of pods, which we do not read.
func TestCheckedPods(t *testing.T) {
	c := hostileAPI(t, `{"phase":"Running","containerStatuses":[{"name":"c","allocatedResources":{"cpu":"250m"}}]}`,
		`{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m"}}}]}`)
	in := client.InNamespace("remote")
	var pods corev1.PodList
	var shadows vkv1alpha1.ShadowPodList
	if err := c.List(t.Context(), &pods, in); err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &shadows, in); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != "web" || pods.Items[0].Status.Phase != corev1.PodRunning || pods.ResourceVersion != "1" ||
		pods.Items[0].Status.ContainerStatuses[0].AllocatedResources.Cpu().String() != "250m" {
		t.Errorf("pods %+v", pods)
	}
	if len(shadows.Items) != 1 || shadows.Items[0].Spec.Pod.Containers[0].Resources.Requests.Cpu().String() != "250m" {
		t.Errorf("ShadowPods %+v", shadows)
	}
	event := firstPod(t, c)
	if pod, ok := event.Object.(*corev1.Pod); !ok || event.Type != watch.Added || pod.Status.Phase != corev1.PodRunning || pod.Name != "web" {
		t.Errorf("the watch delivers %v %v", event.Type, event.Object)
	}
}

// TestAttackM7OtherKind: whatever this cluster asks for, a provider may answer with an object of a kind that has quantities, also in the body of an error. Each
// call ends with an error. Against a client whose decoders know those kinds, this test hangs.
func TestAttackM7OtherKind(t *testing.T) {
	const bomb = "1e-2000000000"
	for _, kind := range []struct{ name, version, body string }{
		{"Pod", "v1", `"spec":{"overhead":{"cpu":"BOMB"}},"status":{"allocatedResources":{"cpu":"BOMB"}}`},
		{"Node", "v1", `"status":{"capacity":{"cpu":"BOMB"}}`},
		{"PersistentVolumeClaim", "v1", `"spec":{"resources":{"requests":{"storage":"BOMB"}}},"status":{"capacity":{"storage":"BOMB"}}`},
		{"PersistentVolume", "v1", `"spec":{"capacity":{"storage":"BOMB"}}`},
		{"ShadowPod", "virtualkubelet.liqo.io/v1alpha1", `"spec":{"pod":{"overhead":{"cpu":"BOMB"}}}`},
	} {
		for _, code := range []int{http.StatusOK, http.StatusInternalServerError} {
			object := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"web","namespace":"remote","resourceVersion":"1"},%s}`,
				kind.version, kind.name, strings.ReplaceAll(kind.body, "BOMB", bomb))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				if r.URL.Query().Has("watch") {
					object = fmt.Sprintf(`{"type":"ADDED","object":%s}`, object)
				}
				fmt.Fprint(w, object)
			}))
			t.Cleanup(server.Close)
			scheme, mapper := kinds(t)
			c, err := NewClient(&rest.Config{Host: server.URL}, server.Client(), scheme, mapper)
			if err != nil {
				t.Fatal(err)
			}
			in := metav1.ObjectMeta{Namespace: "remote", Name: "web"}
			for call, err := range map[string]error{
				"get a Service":   c.Get(t.Context(), client.ObjectKey{Namespace: "remote", Name: "web"}, &corev1.Service{}),
				"get a claim":     c.Get(t.Context(), client.ObjectKey{Namespace: "remote", Name: "web"}, &corev1.PersistentVolumeClaim{}),
				"list ConfigMaps": c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("remote")),
				"list claims":     c.List(t.Context(), &corev1.PersistentVolumeClaimList{}, client.InNamespace("remote")),
				"create a claim":  c.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: in}),
				"create a Secret": c.Create(t.Context(), &corev1.Secret{ObjectMeta: in}),
				"update a claim":  c.Update(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: in}),
				"patch a claim":   c.Patch(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: in}, client.RawPatch(types.MergePatchType, []byte("{}"))),
			} {
				if err == nil {
					t.Errorf("%s, answered with code %d and a %s: no error", call, code, kind.name)
				}
			}
			// Their answers are not decoded into Go types.
			_ = c.Delete(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: in})
			_ = c.Apply(t.Context(), coreapply.PersistentVolumeClaim("web", "remote"), client.FieldOwner("test"), client.ForceOwnership)
			events, err := c.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace("remote"))
			if err != nil {
				continue
			}
			if event := <-events.ResultChan(); event.Type == watch.Added {
				t.Errorf("a watch of Secrets that is answered with a %s delivers %v", kind.name, event.Object)
			}
			events.Stop()
		}
	}
}

// TestWrites: claims are written and answered as with the usual client, and an intent stays as it was.
func TestWrites(t *testing.T) {
	var methods []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if !bytes.Contains(body, []byte("5Gi")) {
			t.Errorf("%s: %q", r.Method, body)
		}
		methods = append(methods, r.Method)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w,
			`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"web","namespace":"remote","uid":"u"},
				"spec":{"resources":{"requests":{"storage":"6Gi"}}}}`)
	}))
	t.Cleanup(server.Close)
	scheme, mapper := kinds(t)
	c, err := NewClient(&rest.Config{Host: server.URL}, server.Client(), scheme, mapper)
	if err != nil {
		t.Fatal(err)
	}
	amount := resource.MustParse("5Gi")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "remote", Name: "web"}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: amount}
	intent := coreapply.PersistentVolumeClaim("web", "remote").WithSpec(coreapply.PersistentVolumeClaimSpec().
		WithResources(coreapply.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: amount})))
	if err := errors.Join(c.Create(t.Context(), claim), c.Apply(t.Context(), intent, client.FieldOwner("test"), client.ForceOwnership)); err != nil {
		t.Fatal(err)
	}
	if claim.UID != "u" || claim.Spec.Resources.Requests.Storage().String() != "6Gi" {
		t.Errorf("the answer is not in the object: %+v", claim)
	}
	if intent.UID != nil || intent.Spec.Resources.Requests.Storage().String() != "5Gi" {
		t.Errorf("the intent has changed: %+v", intent)
	}
	if !slices.Equal(methods, []string{http.MethodPost, http.MethodPatch}) {
		t.Errorf("requests %v", methods)
	}
}

// TestClaimsInProtobuf: a claim with an ordinary amount is read as it is, one with an amount that takes hours is refused, alone and in a list.
func TestClaimsInProtobuf(t *testing.T) {
	const amount, bomb = "123456789012", "1e-200000000"
	want := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "remote", ResourceVersion: "1"}}
	want.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(amount)}
	for _, sent := range []string{amount, bomb} {
		scheme, mapper := kinds(t)
		codecs := serializer.NewCodecFactory(scheme)
		info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		whole := codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			var object runtime.Object = &corev1.PersistentVolumeClaimList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.PersistentVolumeClaim{want}}
			if strings.HasSuffix(r.URL.Path, "/web") {
				object = &want
			}
			var text bytes.Buffer
			if err := whole.Encode(object, &text); err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, strings.ReplaceAll(text.String(), amount, sent))
		}))
		t.Cleanup(server.Close)
		c, err := NewClient(&rest.Config{Host: server.URL}, server.Client(), scheme, mapper)
		if err != nil {
			t.Fatal(err)
		}
		var claim corev1.PersistentVolumeClaim
		var claims corev1.PersistentVolumeClaimList
		alone := c.Get(t.Context(), client.ObjectKey{Namespace: "remote", Name: "web"}, &claim)
		listed := c.List(t.Context(), &claims, client.InNamespace("remote"))
		if sent == bomb {
			if alone == nil || listed == nil {
				t.Errorf("the bomb is accepted: %v, %v", alone, listed)
			}
			continue
		}
		if alone != nil || listed != nil || len(claims.Items) != 1 {
			t.Fatalf("%v, %v, %d claims", alone, listed, len(claims.Items))
		}
		for _, got := range []corev1.PersistentVolumeClaim{claim, claims.Items[0]} {
			if got.TypeMeta = (metav1.TypeMeta{}); !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
}
