// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

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
	scheme, mapper, err := kinds()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newBoundedClient(&rest.Config{Host: server.URL}, server.Client(), scheme, mapper)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAttackM7QuantityBomb: a provider reports a pod with a quantity that takes hours to parse. Each way to read it ends at once with an error. Against
// a client without the check, this test hangs.
func TestAttackM7QuantityBomb(t *testing.T) {
	const bomb = `"1e-2000000000"`
	c := hostileAPI(t, `{"containerStatuses":[{"name":"c","allocatedResources":{"cpu":`+bomb+`}}]}`, `{"containers":[{"name":"c","resources":{"requests":{"cpu":`+bomb+`}}}]}`)
	key := client.ObjectKey{Namespace: "remote", Name: "web"}
	in := client.InNamespace("remote")
	for what, err := range map[string]error{
		"a ShadowPod": c.Get(t.Context(), key, &vkv1alpha1.ShadowPod{}), "a pod": c.Get(t.Context(), key, &corev1.Pod{}),
		"ShadowPods": c.List(t.Context(), &vkv1alpha1.ShadowPodList{}, in), "pods": c.List(t.Context(), &corev1.PodList{}, in),
	} {
		if err == nil || !strings.Contains(err.Error(), "is not an amount that can be read") {
			t.Errorf("%s: %v", what, err)
		}
	}
	events, err := c.Watch(t.Context(), &corev1.PodList{}, in)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if event := <-events.ResultChan(); event.Type == watch.Added {
		t.Errorf("the watch delivers %v", event.Object)
	}
}

// TestCheckedPods: ordinary objects are read as before, except for the spec of pods, which we do not read.
func TestCheckedPods(t *testing.T) {
	c := hostileAPI(t, `{"phase":"Running","containerStatuses":[{"name":"c","allocatedResources":{"cpu":"250m"}}]}`, `{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m"}}}]}`)
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
	events, err := c.Watch(t.Context(), &corev1.PodList{}, in)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	event := <-events.ResultChan()
	if pod, is := event.Object.(*corev1.Pod); !is || event.Type != watch.Added || pod.Status.Phase != corev1.PodRunning || pod.Name != "web" {
		t.Errorf("the watch delivers %v %v", event.Type, event.Object)
	}
}
