// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/shadowtest"
)

// olderServer is an API server that does not have the field hostUsers of pods, while it is there.
type olderServer struct {
	mu sync.Mutex
	// creates and tries: it creates pods, and answers whether it would. loses: its answer does not arrive. failures is how many deletions of pods fail.
	creates, tries, loses bool
	failures              int
	// requests are those that write pods.
	requests []string
}

func (o *olderServer) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = nil
	change()
}

func (o *olderServer) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

func (o *olderServer) serve(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	_, name, isPods := strings.Cut(request.URL.Path, "/namespaces/"+shadowtest.RemoteNamespace+"/pods")
	if !isPods || request.Method != http.MethodPost && request.Method != http.MethodDelete || strings.Count(name, "/") > 1 {
		return next.RoundTrip(request)
	}
	trial := request.URL.Query().Has("dryRun")
	what := request.Method
	if trial {
		what = "trial"
	}
	o.mu.Lock()
	o.requests = append(o.requests, what)
	drops := request.Method == http.MethodPost && (trial && o.tries || !trial && o.creates)
	loses := drops && !trial && o.loses
	fails := request.Method == http.MethodDelete && o.failures > 0
	if o.loses = o.loses && !loses; fails {
		o.failures--
	}
	o.mu.Unlock()
	if fails {
		return nil, errors.New("connection reset")
	}
	if drops {
		if err := withoutHostUsers(request); err != nil {
			return nil, err
		}
	}
	response, err := next.RoundTrip(request)
	if err == nil && loses {
		_ = response.Body.Close() // it is not read
		return nil, errors.New("connection reset")
	}
	return response, err
}

func withoutHostUsers(request *http.Request) error {
	text, err := io.ReadAll(request.Body)
	if err != nil {
		return err
	}
	object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return err
	}
	pod := object.(*corev1.Pod)
	pod.Spec.HostUsers = nil
	if text, err = json.Marshal(pod); err != nil {
		return err
	}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	request.Header.Set("Content-Type", "application/json")
	return nil
}

// TestAPIServersOfTwoVersions: while a cluster is upgraded, a pod is created by another API server than the one that was asked whether it keeps what
// isolates the pod. No pod stays that lacks it, whichever answer is lost.
func TestAPIServersOfTwoVersions(t *testing.T) {
	b := shadowtest.New(t)
	older := &olderServer{}
	b.Between = older.serve
	b.Run()
	isolated := func(name string, policy corev1.RestartPolicy) *vkv1alpha1.ShadowPod {
		return b.CreateShadowPod(name, policy, func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.HostUsers = new(false) })
	}
	// none waits until a pod is refused, and checks that there is none that lacks the field.
	none := func(s *vkv1alpha1.ShadowPod, requests ...string) {
		t.Helper()
		b.Event(s, "Refused", "drops hostUsers")
		b.Until("the pod is gone", func() bool {
			return !b.Exists(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shadowtest.RemoteNamespace, Name: s.Name}})
		})
		if got := older.seen(); !slices.Equal(got, requests) {
			t.Errorf("%s: requests %q, want %q", s.Name, got, requests)
		}
		b.Must(b.Delete(t.Context(), s)) // it would be tried again
		b.Until("the ShadowPod is gone", func() bool { return !b.Exists(s) })
	}
	keeps := func(name string, requests ...string) {
		t.Helper()
		older.set(func() { older.creates, older.tries = false, false })
		if pod := b.Pod(isolated(name, corev1.RestartPolicyAlways), nil); pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
			t.Errorf("%s: hostUsers is %v", name, pod.Spec.HostUsers)
		}
		if got := older.seen(); !slices.Equal(got, requests) {
			t.Errorf("%s: requests %q, want %q", name, got, requests)
		}
	}
	keeps("first", "trial", "POST")
	keeps("second", "POST")

	for name, c := range map[string]struct {
		policy   corev1.RestartPolicy
		loses    bool
		failures int
		requests []string
	}{
		"created":              {corev1.RestartPolicyAlways, false, 0, []string{"POST", "DELETE"}},
		"that-is-not-repeated": {corev1.RestartPolicyNever, false, 0, []string{"POST", "DELETE"}},
		"answer-lost":          {corev1.RestartPolicyAlways, true, 0, []string{"POST", "DELETE"}},
		"not-deleted":          {corev1.RestartPolicyAlways, false, 2, []string{"POST", "DELETE", "DELETE", "DELETE"}},
		"all-that-can-happen":  {corev1.RestartPolicyOnFailure, true, 1, []string{"POST", "DELETE", "DELETE"}},
	} {
		older.set(func() { older.creates, older.tries, older.loses, older.failures = true, false, c.loses, c.failures })
		none(isolated(name, c.policy), c.requests...)
		// For a while, nothing is created and nothing asked.
		older.set(func() {})
		none(isolated(name+"-next", c.policy))
		b.Ahead.Add(int64(time.Minute))
		keeps(name+"-later", "trial", "POST")
	}

	// After a new connection, maybe to another API server, it is asked first.
	older.set(func() { older.creates, older.tries = true, true })
	b.Proxy.Cut()
	s := isolated("reconnected", corev1.RestartPolicyAlways)
	b.Event(s, "Refused", "drops hostUsers")
	if got := older.seen(); slices.Contains(got, http.MethodPost) || !slices.Contains(got, "trial") {
		t.Errorf("after a new connection: requests %q", got)
	}
}

// TestContainersThatAnAPIServerDropsFrom: a field that isolates a container which is added to a running pod is asked for as well, because such a
// container is never removed. What else the API server drops from it is reported.
func TestContainersThatAnAPIServerDropsFrom(t *testing.T) {
	b := shadowtest.New(t)
	b.Run()
	s := b.CreateShadowPod("web", corev1.RestartPolicyAlways, func(s *vkv1alpha1.ShadowPod) {
		s.Spec.Pod.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	pod := b.Pod(s, nil)
	b.StartPod(pod)
	add := func(name string, mount corev1.VolumeMount) {
		t.Helper()
		b.Edit(s, func() {
			mount.Name, mount.MountPath = "v", "/v"
			s.Spec.Pod.EphemeralContainers = append(s.Spec.Pod.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "image:1", VolumeMounts: []corev1.VolumeMount{mount}},
			})
		})
	}
	has := func(name string) bool {
		b.Must(b.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(container corev1.EphemeralContainer) bool { return container.Name == name })
	}
	add("plain", corev1.VolumeMount{})
	b.Until("a container is added", func() bool { return has("plain") })
	add("less", corev1.VolumeMount{BindMountOptions: []string{"noexec"}}) // the API server of the tests does not have that
	b.Event(s, "Refused", "drops bindMountOptions")
	b.Edit(s, func() { s.Labels["app"] = "changed" })
	b.Until("another change is applied", func() bool { return has("plain") && pod.Labels["app"] == "changed" })
	if has("less") {
		t.Error("a container runs with more rights than it asked for")
	}
}
