// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/offloading/exposition"
)

func pod(name string, phase corev1.PodPhase, states ...corev1.ContainerState) *corev1.Pod {
	made := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "liqo-milan"},
		Status:     corev1.PodStatus{Phase: phase},
	}
	for i, state := range states {
		container := string(rune('a' + i))
		made.Spec.Containers = append(made.Spec.Containers, corev1.Container{Name: container, Image: "image"})
		made.Status.ContainerStatuses = append(made.Status.ContainerStatuses, corev1.ContainerStatus{Name: container, ImageID: "image@sha256:0", State: state})
	}
	return made
}

var (
	runs    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended   = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	waiting = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
)

func some() []*corev1.Pod {
	return []*corev1.Pod{
		pod("web", corev1.PodRunning, runs, runs), pod("starts", corev1.PodPending, waiting), pod("job", corev1.PodSucceeded, ended),
		pod("half", corev1.PodRunning, runs, ended),
	}
}

func each(all []*corev1.Pod) Each {
	return func(do func(*corev1.Pod)) {
		for _, page := range all {
			do(page)
		}
	}
}

func TestPods(t *testing.T) {
	for name, c := range map[string]struct {
		show func(*corev1.Pod) *corev1.Pod
		all  []*corev1.Pod
		want []string
	}{
		"all":          {Whole, some(), []string{"web", "starts", "job", "half"}},
		"running":      {Running, some(), []string{"web", "half"}},
		"none":         {Whole, nil, nil},
		"none running": {Running, some()[1:3], nil},
	} {
		var text strings.Builder
		if err := WritePods(&text, each(c.all), c.show); err != nil {
			t.Fatal(err)
		}
		var list corev1.PodList
		if err := json.Unmarshal([]byte(text.String()), &list); err != nil {
			t.Fatalf("%s: %v in %s", name, err, text.String())
		}
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
			if list.Items[i].Kind != "" || list.Items[i].UID == "" || list.Items[i].Namespace != "shop" {
				t.Errorf("%s: %+v", name, list.Items[i].ObjectMeta)
			}
		}
		if list.Kind != "PodList" || list.APIVersion != "v1" || !slices.Equal(names, c.want) {
			t.Errorf("%s: %s %s %v", name, list.APIVersion, list.Kind, names)
		}
	}
	half := some()[3]
	if got := Running(half); len(got.Spec.Containers) != 1 || got.Spec.Containers[0].Image != "image@sha256:0" || got.Spec.NodeName != "" {
		t.Errorf("of a pod of which one container runs: %+v", got.Spec)
	}
	if half.Kind != "Pod" {
		t.Error("the pod of the cache was changed")
	}
	if err := WritePods(broken{}, each(some()), Whole); err == nil {
		t.Error("a reader who has gone is no error")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestMetrics(t *testing.T) {
	page := exposition.NewPage(1 << 20)
	if err := Metrics(page, Node{Name: "liqo-milan", Version: "v1.37.2"}, each(some())); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := page.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	want := []string{
		`kubelet_active_pods{static="false"} 3`, `kubelet_desired_pods{static="false"} 4`, `kubelet_node_name{node="liqo-milan"} 1`,
		`kubelet_running_containers{container_state="created"} 0`, `kubelet_running_containers{container_state="exited"} 2`,
		`kubelet_running_containers{container_state="running"} 3`, `kubelet_running_containers{container_state="unknown"} 0`,
		`kubelet_running_pods 2`, `kubernetes_build_info{git_version="v1.37.2",major="1",minor="37"} 1`,
	}
	if slices.Sort(lines); !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestRelease(t *testing.T) {
	for version, want := range map[string]string{"v1.37.2": "1.37", "v1.30.0-gke.100": "1.30", "v1.29": "1.29", "": ".", "v1": "."} {
		if major, minor := release(version); major+"."+minor != want {
			t.Errorf("%q: %s.%s", version, major, minor)
		}
	}
}

func TestConfig(t *testing.T) {
	text, err := json.Marshal(Config(Node{Port: 10250, Pods: 7, LeaseSeconds: 40, StatusSeconds: 10, SignedServing: true}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"kubeletconfig":{`, `"maxPods":7`, `"port":10250`, `"nodeLeaseDurationSeconds":40`, `"nodeStatusUpdateFrequency":"10s"`,
		`"serverTLSBootstrap":true`, `"anonymous":{"enabled":false}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if _, stated := Config(Node{})["kubeletconfig"].(map[string]any)["maxPods"]; stated {
		t.Error("a bound that is not known is stated")
	}
}

// TestSubresources: the rights are those of a kubelet, and a path that only begins like another needs the widest.
func TestSubresources(t *testing.T) {
	for path, want := range map[string]string{
		"/stats/summary": "stats", "/stats": "stats", "/metrics": "metrics", "/metrics/cadvisor": "metrics", "/metricsx": "proxy", "/logs/": "log",
		"/checkpoint/a/b/c": "checkpoint",
		"/pods":             "pods,proxy", "/pods/": "pods,proxy", "/runningpods/": "pods,proxy", "/podsecrets": "proxy", "/healthz": "healthz,proxy",
		"/healthz/syncloop": "healthz,proxy",
		"/configz":          "configz,proxy", "/exec/a/b/c": "proxy", "/containerLogs/a/b/c": "proxy", "/run/a/b/c": "proxy", "/": "proxy", "": "proxy",
		"/debug/pprof/heap": "proxy",
	} {
		if got := strings.Join(Subresources(path), ","); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for method, want := range map[string]string{
		"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "BREW": "get",
	} {
		if got := Verb(method); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}
