// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func object(uid, version, phase string) string {
	return fmt.Sprintf(
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%s","namespace":"faults","uid":"%s","resourceVersion":"%s"},"status":{"phase":"%s"}}`,
		uid, uid, version, phase,
	)
}

func listed(version string, objects ...string) string {
	return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%s"},"items":[%s]}`, version, strings.Join(objects, ","))
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"type":"%s","object":%s}`, kind, object)
}

const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`

// TestRecorder follows an API server whose watches break: once without a loss of events, once with one.
func TestRecorder(t *testing.T) {
	// Each request is answered by the next of these; a watch ends after its answer.
	answers := []struct{ query, body string }{
		{"", listed("5", object("a", "3", "Running"), object("b", "4", "Running"))},
		{"5", event("MODIFIED", object("a", "7", "Succeeded"))},
		{"7", ""}, // the watch ended without an event: nothing was lost
		{"7", event("DELETED", object("a", "8", "Succeeded")) + event("BOOKMARK", object("", "20", ""))},
		{"20", event("ERROR", expired)}, // everything was lost
		{"", listed("90", object("c", "80", "Running"))},
		{"90", ""},
	}
	var mu sync.Mutex
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		next := answers[min(asked, len(answers)-1)]
		query := ""
		if r.URL.Query().Get("watch") != "" {
			query = r.URL.Query().Get("resourceVersion")
		}
		if query != next.query {
			t.Errorf("request %d: %s, want a watch from %q", asked, r.URL, next.query)
		}
		asked++
		_, _ = w.Write([]byte(next.body))
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	s := &source{
		cluster: consumer, resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, client: client, options: metav1.ListOptions{},
		record: func(f Fact) {
			switch {
			case f.Gap != nil:
				got = append(got, "gap of "+f.Gap.Kind+": "+f.Gap.Why)
			case f.Gone:
				if got = append(got, f.Pod.UID+" gone, "+f.Pod.Phase); f.Pod.UID == "b" {
					cancel() // this is the last fact
				}
			default:
				got = append(got, f.Pod.UID+" "+f.Pod.Phase)
			}
		},
	}
	s.follow(ctx)
	want := "a Running, b Running, a Succeeded, a gone, Succeeded, gap of pods: too old resource version, c Running, b gone, Running"
	if recorded := strings.Join(got, ", "); recorded != want {
		t.Errorf("recorded: %s\n  want: %s", recorded, want)
	}
}

const (
	testPod       = "0d9a7a5e-0000-4000-8000-000000000001"
	testContainer = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// process writes the files that a kernel shows for a process.
func process(t *testing.T, proc string, id int, state string, ticks int, cgroup, environment string) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(id))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat": fmt.Sprintf("%d (a) b) %s 1%s %d 0 0", id, state, strings.Repeat(" 0", 17), ticks), "cgroup": cgroup, "environ": environment,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	if err := os.WriteFile(filepath.Join(proc, "uptime"), []byte("1000.00 1.00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var facts []Fact
	w := &processWatcher{proc: proc, record: func(f Fact) { facts = append(facts, f) }, known: map[int]*Process{}, others: map[int]time.Time{}}
	boot, err := w.boot()
	if err != nil {
		t.Fatal(err)
	}
	group := "9:pids:/liqo-playground/milan/kubepods/besteffort/pod" + testPod + "/" + testContainer + "\n"
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"a container that is being started, and another process", func() {
			process(t, proc, 7, "S", 1000, "9:pids:/\n", "PATH=/\x00")
			process(t, proc, 8, "S", 1000, group, "PATH=/\x00")
		}, ""},
		{"the container has started", func() { process(t, proc, 7, "S", 1000, group, "PATH=/\x00FOR_POD=a\x00") }, "a started"},
		{"it still runs", func() {}, ""},
		{"it is a zombie", func() { process(t, proc, 7, "Z", 1000, group, "") }, "a gone"},
		{"a pod that the consumer runs itself", func() { process(t, proc, 8, "S", 1000, group, "FOR_POD="+testPod+"\x00") }, ""},
		{"its PID is reused", func() { process(t, proc, 7, "S", 3000, group, "FOR_POD=b\x00") }, "b started"},
		{"its PID is reused between two scans", func() { process(t, proc, 7, "S", 4000, group, "FOR_POD=c\x00") }, "b gone, c started"},
		{"it is gone", func() { _ = os.RemoveAll(filepath.Join(proc, "7")) }, "c gone"},
	}
	for _, step := range steps {
		facts = nil
		step.do()
		if err := w.scan(boot); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range facts {
			state := " started"
			if f.Gone {
				state = " gone"
			}
			got = append(got, f.Process.For+state)
			if f.Process.PodUID != testPod || f.Process.Container != testContainer {
				t.Errorf("%s: %+v", step.name, f.Process)
			}
		}
		if recorded := strings.Join(got, ", "); recorded != step.want {
			t.Errorf("%s: %q, want %q", step.name, recorded, step.want)
		}
	}
	if started, _ := w.started(8, boot); started.Sub(boot) != 10*time.Second {
		t.Errorf("started %v after the machine", started.Sub(boot))
	}
}

// TestObject checks the fields that the history keeps, with a pod as API servers encode it.
func TestObject(t *testing.T) {
	var full map[string]any
	text := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"remote","uid":"x","annotations":{"virtualkubelet.liqo.io/fence":"a"},
		"ownerReferences":[{"apiVersion":"v1","kind":"ShadowPod","name":"p","uid":"s","controller":true}]},"spec":{"nodeName":"n","restartPolicy":"OnFailure","containers":[]},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"main","containerID":"containerd://c2","restartCount":1,
		"image":"i","imageID":"i","ready":true,"state":{"running":{"startedAt":"2026-01-01T12:00:10Z"}},
		"lastState":{"terminated":{"containerID":"containerd://c1","exitCode":3,"startedAt":"2026-01-01T12:00:00Z","finishedAt":"2026-01-01T12:00:09Z","message":"run 1"}}}]}}`
	if err := json.Unmarshal([]byte(text), &full); err != nil {
		t.Fatal(err)
	}
	p, err := pod(provider, unstructuredOf(full))
	if err != nil {
		t.Fatal(err)
	}
	runs := collect([]Fact{{At: at(20), Cluster: provider, Pod: p}})["a"]
	if len(runs) != 2 || runs[0].id != "c1" || runs[0].ended == nil || runs[0].ended.Message != "run 1" ||
		!runs[1].until.Equal(at(20)) || runs[1].node != "n" || p.Owner != "ShadowPod/p" {
		t.Errorf("%+v", runs)
	}
}

func unstructuredOf(content map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: content}
}
