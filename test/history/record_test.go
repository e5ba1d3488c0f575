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
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%s","namespace":"faults","uid":"%s","resourceVersion":"%s"},"status":{"phase":"%s"}}`, uid, uid, version, phase)
}

func listed(version string, objects ...string) string {
	return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%s"},"items":[%s]}`, version, strings.Join(objects, ","))
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"type":"%s","object":%s}`, kind, object)
}

const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`

// TestRecorder follows an API server whose watches break: once so that nothing is lost, once so that something is.
func TestRecorder(t *testing.T) {
	// Each request is answered by the next of these; a watch ends after its answer.
	answers := []struct{ query, body string }{
		{"", listed("5", object("a", "3", "Running"), object("b", "4", "Running"))},
		{"5", event("MODIFIED", object("a", "7", "Succeeded"))},
		{"7", ""}, // it ended without a word: nothing was lost
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
		cluster: here, resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, client: client, options: metav1.ListOptions{},
		tell: func(f Fact) {
			switch {
			case f.Gap != nil:
				got = append(got, "gap of "+f.Gap.Kind+": "+f.Gap.Why)
			case f.Gone:
				got = append(got, f.Pod.UID+" gone, "+f.Pod.Phase)
			default:
				if got = append(got, f.Pod.UID+" "+f.Pod.Phase); f.Pod.UID == "c" {
					time.AfterFunc(100*time.Millisecond, cancel) // b is found missing after that
				}
			}
		},
	}
	s.follow(ctx)
	want := "a Running, b Running, a Succeeded, a gone, Succeeded, gap of pods: too old resource version, c Running, b gone, Running"
	if said := strings.Join(got, ", "); said != want {
		t.Errorf("recorded: %s\n  want: %s", said, want)
	}
}

const (
	somePod  = "0d9a7a5e-0000-4000-8000-000000000001"
	someWord = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// process writes what a kernel shows of one.
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

func TestMachine(t *testing.T) {
	proc := t.TempDir()
	if err := os.WriteFile(filepath.Join(proc, "uptime"), []byte("1000.00 1.00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var facts []Fact
	m := &machine{proc: proc, tell: func(f Fact) { facts = append(facts, f) }, known: map[int]*Process{}, others: map[int]time.Time{}}
	boot, err := m.boot()
	if err != nil {
		t.Fatal(err)
	}
	group := "9:pids:/liqo-playground/milan/kubepods/besteffort/pod" + somePod + "/" + someWord + "\n"
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"a container that is only being started, and others", func() {
			process(t, proc, 7, "S", 1000, "9:pids:/\n", "PATH=/\x00")
			process(t, proc, 8, "S", 1000, group, "PATH=/\x00")
		}, ""},
		{"it has started", func() { process(t, proc, 7, "S", 1000, group, "PATH=/\x00FOR_POD=a\x00") }, "a began"},
		{"it goes on", func() {}, ""},
		{"it is dead and not buried", func() { process(t, proc, 7, "Z", 1000, group, "") }, "a gone"},
		{"its number is used again", func() { process(t, proc, 7, "S", 3000, group, "FOR_POD=b\x00") }, "b began"},
		{"and again between two looks", func() { process(t, proc, 7, "S", 4000, group, "FOR_POD=c\x00") }, "b gone, c began"},
		{"it is gone", func() { _ = os.RemoveAll(filepath.Join(proc, "7")) }, "c gone"},
	}
	for _, step := range steps {
		facts = nil
		step.do()
		if err := m.look(boot); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range facts {
			what := " began"
			if f.Gone {
				what = " gone"
			}
			got = append(got, f.Process.For+what)
			if f.Process.PodUID != somePod || f.Process.Container != someWord {
				t.Errorf("%s: %+v", step.name, f.Process)
			}
		}
		if said := strings.Join(got, ", "); said != step.want {
			t.Errorf("%s: %q, want %q", step.name, said, step.want)
		}
	}
	if began, _ := m.began(8, boot); began.Sub(boot) != 10*time.Second {
		t.Errorf("began %v after the machine", began.Sub(boot))
	}
}

// TestObject holds what is kept of a pod against how API servers write it.
func TestObject(t *testing.T) {
	var full map[string]any
	text := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"twin","uid":"x","annotations":{"virtualkubelet.liqo.io/fence":"a"},
		"ownerReferences":[{"apiVersion":"v1","kind":"ShadowPod","name":"p","uid":"s","controller":true}]},"spec":{"nodeName":"n","restartPolicy":"OnFailure","containers":[]},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"main","containerID":"containerd://c2","restartCount":1,
		"image":"i","imageID":"i","ready":true,"state":{"running":{"startedAt":"2026-01-01T12:00:10Z"}},
		"lastState":{"terminated":{"containerID":"containerd://c1","exitCode":3,"startedAt":"2026-01-01T12:00:00Z","finishedAt":"2026-01-01T12:00:09Z","message":"run 1"}}}]}}`
	if err := json.Unmarshal([]byte(text), &full); err != nil {
		t.Fatal(err)
	}
	p, err := pod(there, unstructuredOf(full))
	if err != nil {
		t.Fatal(err)
	}
	lives := collect([]Fact{{At: at(20), Cluster: there, Pod: p}})["a"]
	if len(lives) != 2 || lives[0].id != "c1" || lives[0].ended == nil || lives[0].ended.Said != "run 1" || !lives[1].until.Equal(at(20)) || lives[1].node != "n" || p.Owner != "ShadowPod/p" {
		t.Errorf("%+v", lives)
	}
}

func unstructuredOf(content map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: content}
}
